// SPDX-License-Identifier: Apache-2.0
//! Sysctls of the kernel, of nodes and of their interfaces; parameters of the kernel's parts.
//!
//! A write is three system calls, and a thousand nodes want fourteen thousand values, nearly all of them alike. So what
//! most nodes want is written at home, from where new namespaces have it, and a node is told only what it has otherwise.

use crate::failure::{Failure, Of, Result};
use crate::plan::{Node, Plan, Sysctls, CONGESTION_CONTROL};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::OnceLock;

/// IPv6's, too, are inherited from the first namespace (IPv4's always are).
const INHERIT: &str = "net/core/devconf_inherit_init_net";

/// Whether this kernel has IPv6 at all.
pub fn has_ipv6() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| Path::new("/proc/sys/net/ipv6").exists())
}

/// Forgets what switches off, in the nodes, an IPv6 that is not there.
pub fn forget_ipv6(plan: &mut Plan) {
    for node in &mut plan.nodes {
        node.sysctls.retain(|key, value| !(is_ipv6_switch(key) && value == "1"));
    }
}

fn is_ipv6_switch(key: &str) -> bool {
    key.starts_with("net/ipv6/") && key.ends_with("/disable_ipv6")
}

/// Writes those of a node's (or the whole kernel's) sysctls that are wanted.
pub fn write_sysctls(owner: &str, sysctls: &Sysctls, wanted: impl Fn(&str) -> bool) -> Result<()> {
    for (key, value) in sysctls.iter().filter(|(key, _)| wanted(key)) {
        write(owner, key, value)?;
    }
    Ok(())
}

/// The sysctls that exist only once the node's links do. To be called inside the node.
pub fn write_interface_sysctls(node: &Node) -> Result<()> {
    write_sysctls(&owner(node), &node.sysctls, |key| interface_of(key).is_some())
}

/// On the host's kernel, where only sockets are told their congestion control: see `World::congestion_control`.
pub fn write_sysctls_of_the_host(node: &Node) -> Result<()> {
    write_sysctls(&owner(node), &node.sysctls, |key| interface_of(key).is_none() && key != CONGESTION_CONTROL)
}

/// The sysctls of many nodes that links inherit (`all`, `default`) or that have nothing to do with links.
#[derive(Default)]
pub struct Nodes<'a> {
    /// What namespaces would have of the keys that were written at home.
    before: BTreeMap<&'a str, String>,
    /// What a new namespace has, as far as it was looked at; None: nobody can say.
    new: HashMap<&'a str, Option<String>>,
}

impl<'a> Nodes<'a> {
    /// At home, before there are namespaces.
    pub fn prepare(nodes: &[&'a Node]) -> Result<Self> {
        let shared = shared(nodes.iter().map(|node| &node.sysctls));
        let mut before = BTreeMap::new();
        if !shared.is_empty() {
            write("all nodes", INHERIT, "1")?;
        }
        for (key, value) in shared {
            // What is so by itself need not be written, unless others would be too.
            if let Some(old) = read(key).filter(|old| changes_others(key) || !same(old, value)) {
                write("all nodes", key, value)?;
                before.insert(key, old);
            }
        }
        Ok(Self { before, new: HashMap::new() })
    }

    /// In a node's new namespace.
    pub fn write(&mut self, node: &'a Node) -> Result<()> {
        let mut wanted: BTreeMap<&str, String> =
            self.before.iter().map(|(key, value)| (*key, value.clone())).collect();
        for (key, value) in node.sysctls.iter().filter(|(key, _)| interface_of(key).is_none()) {
            wanted.insert(key, value.clone());
        }
        // All are looked at before any is written: some change others.
        for key in wanted.keys() {
            self.new.entry(key).or_insert_with(|| read(key));
        }
        for (key, value) in missing(&wanted, &self.new) {
            write(&owner(node), key, value)?;
        }
        Ok(())
    }
}

fn owner(node: &Node) -> String {
    format!("node {}", node.name)
}

/// Of the kernel's parts, before anything uses them.
pub fn write_parameters(plan: &Plan) -> Result<()> {
    for (name, value) in &plan.parameters {
        let path = parameter(name).ok_or_else(|| Failure::new(format!("{name:?} is not PART/PARAMETER")))?;
        put(&path, value).of(|| format!("lab {}: parameter {name} = {value}", plan.lab))?;
    }
    Ok(())
}

/// The file of a parameter, if it is a part's and its name.
fn parameter(name: &str) -> Option<String> {
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let (part, parameter) = name.split_once('/').filter(|(a, b)| is_word(a) && is_word(b))?;
    Some(format!("/sys/module/{part}/parameters/{parameter}"))
}

fn put(path: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(value.as_bytes()))
}

fn write(owner: &str, key: &str, value: &str) -> Result<()> {
    put(&format!("/proc/sys/{key}"), value).of(|| format!("{owner}: sysctl {key} = {value}"))
}

fn read(key: &str) -> Option<String> {
    let mut value = [0; 4096];
    let length = read_whole(&format!("/proc/sys/{key}"), &mut value).ok()?;
    String::from_utf8(value[..length].to_vec()).ok()
}

/// Reads a file of /proc that fits into the buffer: the kernel fills it in one call.
pub fn read_whole(path: &str, buffer: &mut [u8]) -> io::Result<usize> {
    let length = File::open(path)?.read(buffer)?;
    if length == buffer.len() {
        return Err(io::Error::other(format!("{path} is longer than expected")));
    }
    Ok(length)
}

/// What more than half of the nodes want alike, of what namespaces inherit.
fn shared<'a>(nodes: impl ExactSizeIterator<Item = &'a Sysctls>) -> BTreeMap<&'a str, &'a str> {
    let half = nodes.len() / 2;
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (key, value) in nodes.flatten().filter(|(key, _)| is_inherited(key)) {
        *counts.entry((key, value)).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > half).map(|(sysctl, _)| sysctl).collect()
}

fn is_inherited(key: &str) -> bool {
    let of_links = |family: &str| {
        let scope = key.strip_prefix(family).and_then(|rest| rest.strip_prefix("/conf/"));
        scope.is_some_and(|rest| rest.starts_with("all/") || rest.starts_with("default/"))
    };
    let alone = !changes_others(key) || key.ends_with("/disable_ipv6");
    alone
        && (of_links("net/ipv4")
            || of_links("net/ipv6")
            || ["net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", CONGESTION_CONTROL].contains(&key))
}

/// Is written to more than its own place.
fn changes_others(key: &str) -> bool {
    key.ends_with("forward") || key.ends_with("forwarding") || key.starts_with("net/ipv6/conf/all/")
}

/// What is to be written, in order, where a new namespace has what is known of it.
fn missing<'a>(
    wanted: &'a BTreeMap<&str, String>,
    new: &HashMap<&str, Option<String>>,
) -> Vec<(&'a str, &'a str)> {
    let mut changed = false;
    let mut missing = Vec::new();
    for (key, value) in wanted {
        let has = new.get(key).and_then(Option::as_deref).is_some_and(|has| same(has, value));
        if !has || changed {
            missing.push((*key, value.as_str()));
            changed |= changes_others(key);
        }
    }
    missing
}

/// The kernel separates numbers by tabs.
fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

/// The interface of a key such as `net/ipv4/conf/eth0/forwarding`.
fn interface_of(key: &str) -> Option<&str> {
    let parts: Vec<&str> = key.split('/').collect();
    match parts[..] {
        ["net", _, "conf" | "neigh", name, ..] if !["all", "default", "lo"].contains(&name) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysctls(values: &[(&str, &str)]) -> Sysctls {
        values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_keys_of_an_interface_wait_for_it() {
        assert_eq!(interface_of("net/ipv4/conf/eth0/forwarding"), Some("eth0"));
        assert_eq!(interface_of("net/ipv6/neigh/eth1/retrans_time_ms"), Some("eth1"));
        assert_eq!(interface_of("net/ipv4/conf/default/forwarding"), None);
        assert_eq!(interface_of("net/ipv4/conf/all/forwarding"), None);
        assert_eq!(interface_of("net/ipv4/tcp_congestion_control"), None);
    }

    #[test]
    fn a_parameter_is_a_file_of_its_part_and_nothing_else() {
        let file = "/sys/module/tcp_cubic/parameters/hystart";
        assert_eq!(parameter("tcp_cubic/hystart").as_deref(), Some(file));
        for other in
            ["hystart", "/hystart", "tcp_cubic/", "../hystart", "tcp_cubic/../x", "tcp_cubic/x/y", "a b/c"]
        {
            assert_eq!(parameter(other), None, "{other}");
        }
    }

    #[test]
    fn what_most_nodes_want_of_what_is_inherited_is_shared() {
        let (rp, ecn) = ("net/ipv4/conf/all/rp_filter", "net/ipv4/tcp_ecn");
        let nodes =
            [sysctls(&[(rp, "0"), (ecn, "1")]), sysctls(&[(rp, "0"), (ecn, "1")]), sysctls(&[(rp, "1")])];
        assert_eq!(shared(nodes.iter()), BTreeMap::from([(rp, "0")]));
        assert!(shared(nodes[1..].iter()).is_empty(), "half is not most");
        assert!(!is_inherited("net/ipv4/conf/all/forwarding"));
        assert!(is_inherited("net/ipv6/conf/all/disable_ipv6"));
    }

    #[test]
    fn a_node_is_told_what_it_has_otherwise() {
        let wanted = BTreeMap::from([
            ("net/ipv4/tcp_ecn", "1".to_owned()),
            ("net/ipv4/tcp_rmem", "4096 131072 6291456".to_owned()),
            ("net/ipv4/tcp_sack", "1".to_owned()),
        ]);
        let new = HashMap::from([
            ("net/ipv4/tcp_ecn", Some("2\n".to_owned())),
            ("net/ipv4/tcp_rmem", Some("4096\t131072\t6291456\n".to_owned())),
            ("net/ipv4/tcp_sack", None),
        ]);
        assert_eq!(missing(&wanted, &new), [("net/ipv4/tcp_ecn", "1"), ("net/ipv4/tcp_sack", "1")]);
    }

    /// ip_forward = 1 sets accept_redirects = 0 as well.
    #[test]
    fn behind_what_changes_others_all_is_written() {
        let wanted = BTreeMap::from([
            ("net/ipv4/conf/all/accept_redirects", "1".to_owned()),
            ("net/ipv4/ip_forward", "1".to_owned()),
            ("net/ipv4/tcp_sack", "1".to_owned()),
        ]);
        let has = |forward: &str| {
            let values = wanted.keys().map(|key| (*key, Some(String::from("1")))).collect::<HashMap<_, _>>();
            let mut values = values;
            values.insert("net/ipv4/ip_forward", Some(forward.to_owned()));
            missing(&wanted, &values)
        };
        assert_eq!(has("0"), [("net/ipv4/ip_forward", "1"), ("net/ipv4/tcp_sack", "1")]);
        assert!(has("1").is_empty());
    }
}
