//! Runs the built binary, in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than any of these runs takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a run said and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// It refused: this code, a line that says each of `words`, nothing on standard output.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        self.says(words);
        let lines: Vec<&str> = self.err.lines().collect();
        // Clap's usage errors are a few lines; ours are one.
        let one = lines.len() == 1 && lines[0].starts_with("strake: ");
        let usage = lines.len() <= 8 && lines.first().is_some_and(|l| l.starts_with("error: "));
        assert!(one || (code == 2 && usage), "{self:?}");
    }

    /// A word with bars in it stands for any of the words between them.
    #[track_caller]
    pub fn says(&self, words: &[&str]) {
        for word in words {
            let found = word.split('|').any(|w| self.err.contains(w));
            assert!(found, "{word:?} is not said: {self:?}");
        }
        let text = format!("{}{}", self.out, self.err);
        assert!(!text.contains("panicked") && !text.contains("RUST_BACKTRACE"), "{self:?}");
        assert!(!text.contains("os error 22"), "an errno nobody understands: {self:?}");
    }
}

/// A folder of its own for each test; temporary files go there, too.
pub struct Place {
    folder: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder") }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, bytes).expect("a small file");
        path
    }

    /// Names of all files.
    pub fn names(&self) -> Vec<String> {
        let files = fs::read_dir(self.path()).expect("our folder").flatten();
        let mut names: Vec<String> =
            files.map(|f| f.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strake"));
        command.current_dir(self.path()).env("TMPDIR", self.path()).env_remove("STRAKE_LOG");
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `strake ARGS` to its end. Words are split at spaces.
    pub fn strake(&self, args: &str) -> Ended {
        let args: Vec<&str> = args.split(' ').collect();
        end(self.command(&args).spawn().expect("the binary is built"))
    }

    pub fn start(&self, args: &str) -> Child {
        let args: Vec<&str> = args.split(' ').collect();
        self.command(&args).spawn().expect("the binary is built")
    }
}

/// The end of a process.
pub fn end(child: Child) -> Ended {
    let output = child.wait_with_output().expect("it can be waited for");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Waits until `condition` holds.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// Sends a signal by its name.
pub fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([&format!("-{name}"), &id]).status();
    assert!(sent.expect("kill").success());
}

/// True if any thread of the process has this name.
pub fn has_thread(child: &Child, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .any(|comm| comm.trim().starts_with(name))
}
