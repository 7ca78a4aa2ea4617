//! Texts that tests cut from the committed sample.

use std::fs;
use std::path::Path;

use super::fixture;

/// Two texts of unequal length in a folder.
pub fn two_texts(folder: &Path) -> String {
    let text = fs::read_to_string(fixture("demo/sample.txt")).unwrap();
    let parts = [("a.txt", 0, 9000), ("b.txt", 9000, 1500)];
    let write = |(name, from, count): (&str, usize, usize)| {
        let path = folder.join(name);
        fs::write(&path, text.chars().skip(from).take(count).collect::<String>()).unwrap();
        path.display().to_string()
    };
    parts.map(write).join(" ")
}
