//! Where output goes must not be where data is, nor where other output goes.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use strake_nvme_driver::block::Uri;

/// Refuses outputs that would overwrite a device or each other, or that nobody may ever read.
///
/// `devices` are names as given; `outputs` come with the option that named them.
///
/// # Errors
/// Which two are the same, and what to do.
pub fn check(devices: &[String], outputs: &[(&str, &Path)]) -> Result<(), String> {
    let mut taken: Vec<(String, PathBuf)> = Vec::new();
    let mut written: Vec<(String, PathBuf)> =
        outputs.iter().map(|(option, path)| ((*option).to_owned(), path.to_path_buf())).collect();
    for device in devices {
        follow(device, &mut taken, &mut written);
    }
    for (at, (what, path)) in written.iter().enumerate() {
        let metadata = fs::metadata(path).ok();
        if metadata.as_ref().is_some_and(|m| m.file_type().is_fifo()) {
            return Err(format!(
                "{what} goes to {}, a pipe; use standard output and a shell's pipe",
                path.display()
            ));
        }
        // Terminals, /dev/null and the like take any number of outputs.
        if metadata.is_some_and(|m| m.file_type().is_char_device()) {
            continue;
        }
        let same = |other: &&(String, PathBuf)| is_same(path, &other.1);
        if let Some((other, _)) = taken.iter().chain(&written[..at]).find(same) {
            return Err(format!(
                "{what} goes to {}, which is also {other}; name another file",
                path.display()
            ));
        }
    }
    Ok(())
}

/// The files that a device's name leads to: data at its end, traces on the way.
fn follow(name: &str, taken: &mut Vec<(String, PathBuf)>, written: &mut Vec<(String, PathBuf)>) {
    let Ok(uri) = Uri::parse(name) else { return };
    let path = PathBuf::from(uri.body());
    match uri.scheme() {
        "file" => taken.push(("a device".to_owned(), path)),
        "trace" if !uri.body().is_empty() => written.push(("a trace".to_owned(), path)),
        _ => {}
    }
    if let Some(inner) = uri.inner() {
        follow(inner, taken, written);
    }
}

/// True if both paths lead to one file, whether it is there yet or not.
fn is_same(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        (Err(_), Err(_)) => absolute(a) == absolute(b),
        _ => false,
    }
}

fn absolute(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_on_a_device_or_on_another_output_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = |path: &Path| path.display().to_string();
        fs::write(at("disk"), "data").unwrap();
        std::os::unix::fs::symlink(at("disk"), at("link")).unwrap();
        let disk = text(&at("disk"));
        let traced = format!("trace:{}@fault?error=1@{disk}", text(&at("log")));
        assert!(check(std::slice::from_ref(&disk), &[("--output", &at("link"))]).is_err());
        assert!(check(std::slice::from_ref(&traced), &[("--output", &at("log"))]).is_err());
        assert!(check(&[traced.clone(), traced.clone()], &[]).is_err());
        assert!(check(&[format!("trace:{disk}@file:{disk}")], &[]).is_err());
        assert!(check(&[], &[("--output", &at("x")), ("--plot", &at("x"))]).is_err());
        assert_eq!(check(&[traced], &[("--output", &at("x")), ("--plot", &at("y"))]), Ok(()));
        let null = Path::new("/dev/null");
        assert_eq!(check(&["mem:1M".to_owned()], &[("--output", null), ("--plot", null)]), Ok(()));
    }
}
