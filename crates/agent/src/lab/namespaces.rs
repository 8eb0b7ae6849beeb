// SPDX-License-Identifier: Apache-2.0
//! One network namespace per node. Their descriptors stay open, so that entering one is one system call. They are also
//! mounted under /run/netns for `ip netns exec`.

use crate::failure::{Context, Result};
use crate::lab::sysctls::{self, NodeSysctls};
use crate::placement::Placement;
use crate::plan::{Node, Plan};
use nix::mount::{mount, MsFlags};
use nix::sched::{setns, unshare, CloneFlags};
use std::cell::Cell;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};

const MOUNTS: &str = "/run/netns";
const CURRENT: &str = "/proc/thread-self/ns/net";
const ROOT: &str = "the root network namespace";

pub struct Namespaces {
    /// Name and namespace by node. None: the root namespace, which has the stubs of remote nodes, and on the host's
    /// kernel the local node (the container's namespace).
    nodes: Vec<(String, Option<File>)>,
    root: File,
    /// The thread's current node; None: the root namespace.
    current: Cell<Option<usize>>,
}

impl Namespaces {
    /// Creates the namespaces of local nodes and writes the sysctls that do not belong to an interface.
    pub fn create(plan: &Plan, placement: &Placement) -> Result<Self> {
        let root = File::open(CURRENT).with_context(|| CURRENT.into())?;
        let mut nodes: Vec<_> = plan.nodes.iter().map(|node| (node.name.clone(), None)).collect();
        let local: Vec<&Node> = placement.local_nodes().map(|index| &plan.nodes[index]).collect();
        let mut node_sysctls = NodeSysctls::default();
        if !placement.on_host_kernel() {
            fs::create_dir_all(MOUNTS).with_context(|| MOUNTS.into())?;
            node_sysctls = NodeSysctls::prepare(&local)?;
        }
        for (index, node) in placement.local_nodes().map(|index| (index, &plan.nodes[index])) {
            if placement.on_host_kernel() {
                sysctls::write_host_sysctls(node)?;
            } else {
                nodes[index].1 = Some(create(node)?);
                node_sysctls.write(node)?;
            }
        }
        if nodes.iter().any(|(_, file)| file.is_some()) {
            setns(&root, CloneFlags::CLONE_NEWNET).with_context(|| ROOT.into())?;
        }
        Ok(Self { nodes, root, current: Cell::new(None) })
    }

    /// Moves the calling thread into a node's namespace.
    pub fn enter(&self, node: usize) -> Result<()> {
        let (name, Some(file)) = &self.nodes[node] else { return self.enter_root() };
        if self.current.get() != Some(node) {
            setns(file, CloneFlags::CLONE_NEWNET)
                .with_context(|| format!("node {name}: entering its network namespace"))?;
            self.current.set(Some(node));
        }
        Ok(())
    }

    /// Moves the calling thread into the root namespace.
    pub fn enter_root(&self) -> Result<()> {
        match self.current.take() {
            Some(_) => setns(&self.root, CloneFlags::CLONE_NEWNET).with_context(|| ROOT.into()),
            None => Ok(()),
        }
    }

    pub fn name(&self, node: usize) -> &str {
        &self.nodes[node].0
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.0 == name)
    }

    /// Descriptor of a node's namespace, for IFLA_NET_NS_FD.
    pub fn descriptor(&self, node: usize) -> RawFd {
        self.nodes[node].1.as_ref().unwrap_or(&self.root).as_raw_fd()
    }
}

/// Creates a node's namespace and moves the thread into it.
fn create(node: &Node) -> Result<File> {
    let context = || format!("node {}: its network namespace", node.name);
    unshare(CloneFlags::CLONE_NEWNET).with_context(context)?;
    let path = format!("{MOUNTS}/{}", node.name);
    File::create(&path).with_context(context)?;
    mount(Some(CURRENT), path.as_str(), None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(context)?;
    File::open(&path).with_context(context)
}
