// SPDX-License-Identifier: Apache-2.0
//! The file system view of a node's programs: the machine's, with private folders and files of the node mounted over
//! it. Programs of many nodes can therefore use their usual paths, as in containers.

use crate::failure::{Context, Result};
use crate::plan::Node;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Folder that holds the private folders and files of all nodes.
const NODES: &str = "/run/qbed/nodes";

#[derive(Debug, Default, Clone)]
pub struct View {
    root: PathBuf,
    folders: Vec<String>,
    /// Bind mounts as (source, target), prepared because a forked child must not allocate.
    mounts: Vec<(CString, CString)>,
}

impl View {
    /// Creates a node's folders and writes its files.
    pub fn create(node: &Node) -> Result<Self> {
        Self::create_in(Path::new(NODES), node)
    }

    fn create_in(nodes: &Path, node: &Node) -> Result<Self> {
        let root = nodes.join(&node.name);
        let mut view = Self { root, folders: node.folders.clone(), mounts: Vec::new() };
        for folder in &node.folders {
            let context = || format!("node {}: folder {folder}", node.name);
            fs::create_dir_all(view.backing(folder)).with_context(context)?;
            fs::create_dir_all(folder).with_context(context)?;
            view.mount(folder).with_context(context)?;
        }
        for (path, content) in &node.files {
            let context = || format!("node {}: file {path}", node.name);
            let backing = view.backing(path);
            fs::create_dir_all(backing.parent().unwrap_or(&view.root)).with_context(context)?;
            fs::write(&backing, content).with_context(context)?;
            if content.starts_with("#!") {
                fs::set_permissions(&backing, fs::Permissions::from_mode(0o755)).with_context(context)?;
            }
            if !view.is_in_folders(path) {
                view.mount(path).with_context(context)?;
            }
        }
        Ok(view)
    }

    /// Translates a path of the node's programs to a path of the agent.
    pub fn resolve(&self, path: &str) -> PathBuf {
        if self.is_in_folders(path)
            || self.mounts.iter().any(|(_, target)| target.as_bytes() == path.as_bytes())
        {
            self.backing(path)
        } else {
            path.into()
        }
    }

    fn is_in_folders(&self, path: &str) -> bool {
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

    /// Applies the view to the calling process. Makes only system calls, for use between fork and exec.
    pub fn enter(&self) -> io::Result<()> {
        if self.mounts.is_empty() {
            return Ok(());
        }
        let check = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        let none = std::ptr::null();
        // SAFETY: all pointers are to live strings, or null where the kernel accepts it.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            check(libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))?;
            self.mounts.iter().try_for_each(|(source, target)| {
                check(libc::mount(source.as_ptr(), target.as_ptr(), none, libc::MS_BIND, none.cast()))
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
    fn files_are_written_to_the_nodes_folder_and_scripts_are_executable() {
        let nodes = std::env::temp_dir().join(format!("qbed-view-{}", std::process::id()));
        let folder = nodes.join("private");
        let script = folder.join("greet").display().to_string();
        let plan = dumbbell(|plan| {
            plan["nodes"][1]["folders"] = json!([folder]);
            plan["nodes"][1]["files"] =
                json!({&script: "#!/bin/sh\necho hello", "/etc/group": "root:x:0:\n"});
        });
        let view = View::create_in(&nodes, &plan.nodes[1]).unwrap();
        let backing = view.resolve(&script);
        assert!(backing.starts_with(nodes.join("s1")));
        assert_eq!(fs::metadata(&backing).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_to_string(view.resolve("/etc/group")).unwrap(), "root:x:0:\n");
        assert_eq!(view.resolve("/etc/passwd"), Path::new("/etc/passwd"));
        assert_eq!(view.mounts.len(), 2);
        fs::remove_dir_all(nodes).unwrap();
    }
}
