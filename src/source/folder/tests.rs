use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
};

use tempfile::TempDir;

use super::*;

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    for (path, bytes) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("it is below the root")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }
    root
}

fn names(root: &TempDir) -> Vec<String> {
    let found = Folder::images(root).expect("images");
    let prefix = format!("{}/", root.path().display());
    (0..found.len()).map(|i| found.name(i).strip_prefix(&prefix).expect("it is below the root").to_owned()).collect()
}

fn read(source: &Folder, sample: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = b"what was there before".to_vec();
    source.read(sample, &mut bytes, &|| true).map(|()| bytes)
}

/// Drops a file from the page cache, for which it must be on the disk.
fn make_cold(path: &std::path::Path) {
    let file = File::open(path).expect("it is there");
    file.sync_all().expect("a disk");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice is free");
}

#[test]
fn images_are_found_at_every_depth_in_the_order_of_their_paths() {
    let files = ["b.png", "a/2.jpg", "a/10.JPG", "a-b/x.jpeg", "a/c/1.Png", "a/c.jpg", "notes.txt", ".hidden.jpg", ".git/1.jpg"];
    let root = folder(&files.map(|path| (path, &b"x"[..])));
    assert_eq!(names(&root), ["a/10.JPG", "a/2.jpg", "a/c/1.Png", "a/c.jpg", "a-b/x.jpeg", "b.png"]);
}

#[test]
fn a_hidden_root_is_no_hidden_folder() {
    let root = folder(&[(".data/1.jpg", b"x")]);
    assert_eq!(Folder::images(root.path().join(".data")).expect("one image").len(), 1);
}

#[test]
fn links_are_followed_but_not_in_circles() {
    let root = folder(&[("a/1.jpg", b"one")]);
    let elsewhere = folder(&[("2.jpg", b"two")]);
    symlink(root.path(), root.path().join("a/up")).expect("a link");
    symlink(elsewhere.path(), root.path().join("b")).expect("a link");
    symlink(elsewhere.path().join("2.jpg"), root.path().join("c.jpg")).expect("a link");
    assert_eq!(names(&root), ["a/1.jpg", "b/2.jpg", "c.jpg"]);
    let found = Folder::images(&root).expect("images");
    assert_eq!(read(&found, 2).expect("it is there"), b"two");
}

#[test]
fn a_link_to_nowhere_is_a_sample_that_cannot_be_read() {
    let root = folder(&[("a.jpg", b"x")]);
    for link in ["b.jpg", ".c.jpg", "d.txt"] {
        symlink("/nowhere/at/all", root.path().join(link)).expect("a link");
    }
    let found = Folder::images(&root).expect("images");
    assert_eq!(found.len(), 2);
    let failure = read(&found, 1).expect_err("it leads nowhere");
    assert_eq!(failure.kind, FailureKind::NotFound);
    assert!(failure.message.contains("b.jpg"), "{failure}");
}

#[test]
fn a_folder_without_images_says_what_is_there_instead() {
    let root = folder(&[("a.txt", b"x"), ("b/c.gif", b"x"), ("d/.jpg", b"x")]);
    let error = Folder::images(&root).expect_err("no image");
    assert_eq!(error.to_string(), format!("no .jpg or .jpeg or .png file under `{}`", root.path().display()));
    assert_eq!(error.hint(), "2 files with other names are there; hidden ones are passed over");
}

#[test]
fn what_is_no_folder_is_said_by_name() {
    let root = folder(&[("a.jpg", b"x")]);
    for path in [root.path().join("a.jpg"), PathBuf::from("/nowhere/at/all")] {
        let error = Folder::images(&path).expect_err("it is no folder");
        assert!(matches!(error, FolderError::NotAFolder { .. }), "{error:?}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn an_unreadable_folder_is_an_error_that_names_it() {
    let root = folder(&[("a/1.jpg", b"x"), ("b/2.jpg", b"x")]);
    let closed = root.path().join("b");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("it is ours");
    let found = Folder::images(&root);
    let privileged = fs::read_dir(&closed).is_ok();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).expect("it is ours");
    if privileged {
        // The superuser reads everything, so there is nothing unreadable to be found.
        assert_eq!(found.expect("two images").len(), 2);
    } else {
        let error = found.expect_err("it cannot be read");
        assert!(matches!(&error, FolderError::Unreadable { path, .. } if *path == closed), "{error:?}");
    }
}

#[test]
fn a_used_buffer_holds_exactly_the_next_file_and_does_not_grow_again() {
    let large = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect::<Vec<_>>();
    let root = folder(&[("0.jpg", &large), ("1.jpg", b""), ("2.jpg", b"small"), ("3.jpg", &large)]);
    let source = Folder::images(&root).expect("images");
    assert_eq!((source.bytes(), source.bytes_bound(2), source.bytes_bound(9)), (6_000_005, Some(5), None));
    for try_first in [false, true] {
        let mut bytes = Vec::new();
        let mut grown = None;
        for (sample, expected) in [(0, &large[..]), (1, b""), (2, b"small"), (3, &large)] {
            if !try_first || !source.try_read(sample, &mut bytes).expect("it is there") {
                source.read(sample, &mut bytes, &|| true).expect("it is there");
            }
            assert!(bytes == expected, "sample {sample} differs");
            assert_eq!(*grown.get_or_insert(bytes.as_ptr()), bytes.as_ptr(), "the buffer moved at sample {sample}");
        }
    }
}

#[test]
fn a_file_in_the_page_cache_is_read_without_waiting_and_a_cold_one_is_not() {
    let root = folder(&[("0.jpg", &[7; 200_000])]);
    let source = Folder::images(&root).expect("images");
    let mut bytes = Vec::new();
    make_cold(&root.path().join("0.jpg"));
    let cold = source.try_read(0, &mut bytes).expect("it is there");
    source.read(0, &mut bytes, &|| true).expect("it is there");
    assert!(bytes == [7; 200_000]);
    bytes.fill(0);
    let warm = source.try_read(0, &mut bytes).expect("it is there");
    // File systems in memory have no cold files, and some file systems cannot promise not to wait.
    match (cold, warm) {
        (false, true) | (true, true) => assert!(bytes == [7; 200_000]),
        (false, false) => {}
        (true, false) => panic!("a read warms a file"),
    }
}

#[test]
fn a_file_that_changes_after_the_listing_is_a_failure_that_names_it() {
    let root = folder(&[("0.jpg", b"12345"), ("1.jpg", b"12345"), ("2.jpg", b"12345")]);
    let source = Folder::images(&root).expect("images");
    fs::write(root.path().join("0.jpg"), b"123").expect("it is ours");
    fs::write(root.path().join("1.jpg"), b"1234567").expect("it is ours");
    fs::remove_file(root.path().join("2.jpg")).expect("it is ours");
    for (sample, kind) in
        [(0, FailureKind::Truncated), (1, FailureKind::Corrupt), (2, FailureKind::NotFound), (3, FailureKind::NotFound)]
    {
        let failure = read(&source, sample).expect_err("it changed");
        assert_eq!(failure.kind, kind, "{failure}");
        assert!(failure.message.contains(&source.name(sample)), "{failure}");
        match source.try_read(sample, &mut Vec::new()) {
            Err(failure) => assert_eq!(failure.kind, kind, "{failure}"),
            Ok(read) => assert!(!read, "it changed"),
        }
    }
}

#[test]
fn a_long_read_that_nobody_wants_ends_after_a_piece() {
    let root = folder(&[("0.jpg", &[7; 3 * PIECE_BYTES])]);
    let source = Folder::images(&root).expect("images");
    let asked = std::cell::Cell::new(0);
    let wanted = || {
        asked.set(asked.get() + 1);
        asked.get() < 2
    };
    assert_eq!(source.read(0, &mut Vec::new(), &wanted).expect_err("nobody wants it").kind, FailureKind::Closed);
    assert_eq!(asked.get(), 2);
}
