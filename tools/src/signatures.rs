pub struct Found {
    pub name: &'static str,
    pub offset: u64,
}
pub fn detect(_c: u64, _r: impl FnMut(u64, &mut [u8]) -> Option<()>) -> Vec<Found> {
    Vec::new()
}
