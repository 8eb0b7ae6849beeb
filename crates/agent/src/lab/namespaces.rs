// SPDX-License-Identifier: Apache-2.0
//! One network namespace for each node. Their descriptors are kept, so that moving there is one system call; they
//! are also mounted under /run/netns, where `ip netns exec` looks.

use crate::failure::{Of, Result};
use crate::lab::sysctls;
use crate::plan::{Node, Plan};
use crate::scope::Scope;
use nix::mount::{mount, MsFlags};
use nix::sched::{setns, unshare, CloneFlags};
use std::cell::Cell;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};

const NAMES: &str = "/run/netns";
const OURS: &str = "/proc/thread-self/ns/net";
const HOME: &str = "the first network namespace";

pub struct Namespaces {
    /// None: at home. So are other agents' nodes, which stand for what this one has of them, the far ends of its links;
    /// on the host's kernel the agent's own node is, whose namespace is the container's.
    nodes: Vec<(String, Option<File>)>,
    home: File,
    /// Where the thread is now; None: at home.
    current: Cell<Option<usize>>,
}

impl Namespaces {
    /// Creates the nodes' namespaces and writes the sysctls that links inherit (`all`, `default`) or that have
    /// nothing to do with links.
    pub fn create(plan: &Plan, scope: &Scope) -> Result<Self> {
        let home = File::open(OURS).of(|| OURS.into())?;
        let mut nodes: Vec<_> = plan.nodes.iter().map(|node| (node.name.clone(), None)).collect();
        let here: Vec<&Node> = scope.nodes().map(|index| &plan.nodes[index]).collect();
        let mut values = sysctls::Nodes::default();
        if !scope.on_host_kernel() {
            fs::create_dir_all(NAMES).of(|| NAMES.into())?;
            values = sysctls::Nodes::prepare(&here)?;
        }
        for (index, node) in scope.nodes().map(|index| (index, &plan.nodes[index])) {
            if scope.on_host_kernel() {
                sysctls::write_sysctls_of_the_host(node)?;
            } else {
                nodes[index].1 = Some(create(node)?);
                values.write(node)?;
            }
        }
        if nodes.iter().any(|(_, file)| file.is_some()) {
            setns(&home, CloneFlags::CLONE_NEWNET).of(|| HOME.into())?;
        }
        Ok(Self { nodes, home, current: Cell::new(None) })
    }

    /// Moves the calling thread into a node's namespace.
    pub fn enter(&self, node: usize) -> Result<()> {
        let (name, Some(file)) = &self.nodes[node] else { return self.go_home() };
        if self.current.get() != Some(node) {
            setns(file, CloneFlags::CLONE_NEWNET)
                .of(|| format!("node {name}: entering its network namespace"))?;
            self.current.set(Some(node));
        }
        Ok(())
    }

    pub fn go_home(&self) -> Result<()> {
        match self.current.take() {
            Some(_) => setns(&self.home, CloneFlags::CLONE_NEWNET).of(|| HOME.into()),
            None => Ok(()),
        }
    }

    pub fn name(&self, node: usize) -> &str {
        &self.nodes[node].0
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.0 == name)
    }

    /// For IFLA_NET_NS_FD.
    pub fn descriptor(&self, node: usize) -> RawFd {
        self.nodes[node].1.as_ref().unwrap_or(&self.home).as_raw_fd()
    }
}

/// Makes a node's namespace; the thread is in it then.
fn create(node: &Node) -> Result<File> {
    let here = || format!("node {}: its network namespace", node.name);
    unshare(CloneFlags::CLONE_NEWNET).of(here)?;
    let path = format!("{NAMES}/{}", node.name);
    File::create(&path).of(here)?;
    mount(Some(OURS), path.as_str(), None::<&str>, MsFlags::MS_BIND, None::<&str>).of(here)?;
    File::open(&path).of(here)
}
