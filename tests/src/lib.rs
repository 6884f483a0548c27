//! What judges Strake from outside its packages: the simulator, and tests that cross floors.
