//! One download of a file at a time, across all programs that share the cache.
//!
//! The lock is the one of the Python client: an advisory lock on `.locks/models--ORG--NAME/ETAG.lock`. The system
//! lets go of it when its holder ends, however it ends; the empty file stays.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

/// Pause between two looks at a lock that another program holds.
const LOOK: Duration = Duration::from_millis(200);

/// Why the lock is not there yet, for the user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Notice {
    /// Another program or thread has it
    Held,
    /// The file system knows no locks, and nothing is held
    Unsupported,
}

/// A lock, let go when dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Wait for the lock, as long as it takes. `notify` is called once at most.
pub(super) fn hold(path: &Path, notify: impl FnOnce(Notice)) -> io::Result<Lock> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
    let mut notify = Some(notify);
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {
                if let Some(notify) = notify.take() {
                    notify(Notice::Held);
                }
                std::thread::sleep(LOOK);
            }
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                if let Some(notify) = notify.take() {
                    notify(Notice::Unsupported);
                }
                break;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(Lock { _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn d102_a_second_holder_waits_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.lock");
        let first = hold(&path, |_| panic!("nobody else holds it")).unwrap();
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| hold(&path, move |notice| send.send(notice).unwrap()).is_ok());
            assert_eq!(receive.recv().unwrap(), Notice::Held);
            assert!(!waiting.is_finished());
            drop(first);
            assert!(waiting.join().unwrap());
        });
        assert!(hold(folder.path(), |_| {}).is_err());
    }
}
