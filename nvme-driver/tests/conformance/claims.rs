//! Who may use a device beside whom, in this process and in others.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use strake_nvme_driver::block::{ClaimMode, Device};

use crate::backends::{self, LoopNode, Mount};
use crate::rig;

const HOLD: &str = "STRAKE_TEST_HOLD";

/// Not a test of its own: the other process of the tests below.
#[test]
fn hold_a_claim_for_another_process() {
    let Ok(what) = std::env::var(HOLD) else { return };
    let (mode, path) = what.split_once(' ').expect("mode and path");
    let mode = match mode {
        "read" => ClaimMode::Read,
        "write" => ClaimMode::Write,
        _ => ClaimMode::Exclusive,
    };
    let device = backends::open(Path::new(path), "");
    match device.claim(mode) {
        Ok(_claim) => {
            println!("\nheld");
            // Until the parent closes the pipe.
            let _ = std::io::stdin().lines().next();
        }
        Err(e) => println!("\nrefused: {e}"),
    }
}

/// Another process that holds a claim until dropped, or what it was told.
struct Other {
    child: Child,
    /// Kept open: the test harness has more to say at the end.
    _lines: Box<dyn Iterator<Item = String>>,
    said: String,
}

impl Other {
    fn claim(mode: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "claims::hold_a_claim_for_another_process", "--nocapture"])
            .env(HOLD, format!("{mode} {}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let said = lines.find(|l| l == "held" || l.starts_with("refused"));
        let said = said.expect("it says what became of it");
        Self { child, _lines: Box::new(lines), said }
    }

    fn holds(&self) -> bool {
        self.said == "held"
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

const MODES: [(&str, ClaimMode); 3] =
    [("read", ClaimMode::Read), ("write", ClaimMode::Write), ("exclusive", ClaimMode::Exclusive)];

fn check_table(path: &Path) {
    for (_, held) in MODES {
        for (name, asked) in MODES {
            let here = backends::open(path, "");
            let claim = rig::claim(&here, held);
            let expected = held.coexists(asked);
            let case = format!("{asked} beside {held}");
            // A second handle in this process knows nothing of the first one's book of claims.
            let second = backends::open(path, "");
            if expected {
                drop(rig::claim(&second, asked));
            } else {
                second.claim(asked).expect_err(&case);
            }
            let mut other = Other::claim(name, path);
            for _ in 0..10 {
                if expected && !other.holds() {
                    other = Other::claim(name, path);
                }
            }
            assert_eq!(other.holds(), expected, "{case}, in another process: {}", other.said);
            drop((claim, other));
            rig::wait_until_free(&here);
        }
    }
}

#[test]
fn claims_on_a_file_hold_against_other_handles_and_other_processes() {
    check_table(backends::file_of(&backends::disk(), 1 << 20).path());
    check_table(backends::file_of(&backends::tmpfs(), 1 << 20).path());
}

#[test]
fn claims_on_a_block_node_hold_against_other_handles_and_other_processes() {
    if let Some(node) = LoopNode::new(1 << 20) {
        check_table(&node.path);
    }
}

#[test]
fn a_refusal_says_who_is_in_the_way_and_what_to_do() {
    let file = backends::file_of(&backends::disk(), 1 << 20);
    let _other = Other::claim("write", file.path());
    let error = backends::open(file.path(), "").claim(ClaimMode::Write).unwrap_err().to_string();
    assert!(error.contains("claimed") && error.contains("fuser"), "{error}");
    let Some(node) = LoopNode::new(1 << 20) else { return };
    let _other = Other::claim("write", &node.path);
    let error = backends::open(&node.path, "").claim(ClaimMode::Write).unwrap_err().to_string();
    assert!(error.contains("another process") && error.contains("fuser"), "{error}");
}

#[test]
fn a_mounted_node_is_refused_and_the_refusal_says_where_it_is_mounted() {
    let Some(node) = LoopNode::new(4 << 20) else { return };
    let made = Command::new("mkfs.ext4").arg("-q").arg(&node.path).output();
    if !made.is_ok_and(|out| out.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "mkfs.ext4 is needed");
        eprintln!("SKIPPED: no mkfs.ext4 here");
        return;
    }
    let path = node.path.to_string_lossy().into_owned();
    let Some(mount) = Mount::new(&[&path]) else { return };
    let device = backends::open(&node.path, "");
    for mode in [ClaimMode::Write, ClaimMode::Exclusive] {
        let error = device.claim(mode).unwrap_err().to_string();
        let folder = mount.folder.path().to_string_lossy();
        assert!(error.contains(&format!("mounted at {folder}")), "{error}");
    }
    device.claim(ClaimMode::Read).expect("looking at it harms nobody");
}
