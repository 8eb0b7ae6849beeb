// SPDX-License-Identifier: Apache-2.0
//! What the programs of one node see of the file system: everything, but with folders and files of the node's own in
//! their places. So a program finds its usual paths in a lab of many nodes, as in a container of its own.

use crate::failure::{Of, Result};
use crate::plan::Node;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the nodes' own folders and files really are.
const NODES: &str = "/run/qbed/nodes";

#[derive(Debug, Default, Clone)]
pub struct View {
    root: PathBuf,
    folders: Vec<String>,
    /// What is mounted over what, ready for a child that may not allocate.
    mounts: Vec<(CString, CString)>,
}

impl View {
    /// Makes a node's folders and writes its files.
    pub fn create(node: &Node) -> Result<Self> {
        Self::create_in(Path::new(NODES), node)
    }

    fn create_in(nodes: &Path, node: &Node) -> Result<Self> {
        let root = nodes.join(&node.name);
        let mut view = Self { root, folders: node.folders.clone(), mounts: Vec::new() };
        for folder in &node.folders {
            let here = || format!("node {}: folder {folder}", node.name);
            fs::create_dir_all(view.backing(folder)).of(here)?;
            fs::create_dir_all(folder).of(here)?;
            view.mount(folder).of(here)?;
        }
        for (path, content) in &node.files {
            let here = || format!("node {}: file {path}", node.name);
            let backing = view.backing(path);
            fs::create_dir_all(backing.parent().unwrap_or(&view.root)).of(here)?;
            fs::write(&backing, content).of(here)?;
            if content.starts_with("#!") {
                fs::set_permissions(&backing, fs::Permissions::from_mode(0o755)).of(here)?;
            }
            if !view.owns(path) {
                view.mount(path).of(here)?;
            }
        }
        Ok(view)
    }

    /// Where a path of the node's programs really is.
    pub fn backing_of(&self, path: &str) -> PathBuf {
        if self.owns(path) || self.mounts.iter().any(|(_, target)| target.as_bytes() == path.as_bytes()) {
            self.backing(path)
        } else {
            path.into()
        }
    }

    fn owns(&self, path: &str) -> bool {
        self.folders.iter().any(|folder| Path::new(path).starts_with(folder))
    }

    fn backing(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn mount(&mut self, path: &str) -> io::Result<()> {
        let source = CString::new(self.backing(path).into_os_string().into_encoded_bytes())?;
        self.mounts.push((source, CString::new(path)?));
        Ok(())
    }

    /// Gives the calling process this view. Only system calls: to be called between fork and exec.
    pub fn enter(&self) -> io::Result<()> {
        if self.mounts.is_empty() {
            return Ok(());
        }
        let done = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        let none = std::ptr::null();
        // SAFETY: all pointers are of strings that live, or null where the kernel takes that.
        unsafe {
            done(libc::unshare(libc::CLONE_NEWNS))?;
            done(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))?;
            self.mounts.iter().try_for_each(|(source, target)| {
                done(libc::mount(source.as_ptr(), target.as_ptr(), none, libc::MS_BIND, none.cast()))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::dumbbell;
    use serde_json::json;

    #[test]
    fn files_are_written_aside_and_scripts_can_be_run() {
        let nodes = std::env::temp_dir().join(format!("qbed-view-{}", std::process::id()));
        let own = nodes.join("seen");
        let script = own.join("greet").display().to_string();
        let plan = dumbbell(|plan| {
            plan["nodes"][1]["folders"] = json!([own]);
            plan["nodes"][1]["files"] =
                json!({&script: "#!/bin/sh\necho hello", "/etc/group": "root:x:0:\n"});
        });
        let view = View::create_in(&nodes, &plan.nodes[1]).unwrap();
        let backing = view.backing_of(&script);
        assert!(backing.starts_with(nodes.join("s1")));
        assert_eq!(fs::metadata(&backing).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_to_string(view.backing_of("/etc/group")).unwrap(), "root:x:0:\n");
        assert_eq!(view.backing_of("/etc/passwd"), Path::new("/etc/passwd"));
        assert_eq!(view.mounts.len(), 2);
        fs::remove_dir_all(nodes).unwrap();
    }
}
