// SPDX-License-Identifier: Apache-2.0
//! Sysctls of the kernel, of nodes and of their interfaces; module parameters.
//!
//! A write takes three system calls, and a thousand nodes have fourteen thousand values, most of them equal. Values of
//! the majority are therefore written in the root namespace, from which new namespaces inherit them, and a node's
//! namespace gets only the values that differ.

use crate::failure::{Context, Failure, Result};
use crate::plan::{Node, Plan, Sysctls, CONGESTION_CONTROL};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::OnceLock;

/// Makes new namespaces inherit the IPv6 settings of the initial one. (IPv4 settings are always inherited.)
const INHERIT: &str = "net/core/devconf_inherit_init_net";

/// Whether the kernel supports IPv6.
pub fn has_ipv6() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| Path::new("/proc/sys/net/ipv6").exists())
}

/// Removes sysctls that disable IPv6, for a kernel without IPv6.
pub fn drop_ipv6_switches(plan: &mut Plan) {
    for node in &mut plan.nodes {
        node.sysctls.retain(|key, value| !(is_ipv6_switch(key) && value == "1"));
    }
}

fn is_ipv6_switch(key: &str) -> bool {
    key.starts_with("net/ipv6/") && key.ends_with("/disable_ipv6")
}

/// Writes the sysctls with a key that matches `filter`. `owner`: the node or lab, for errors.
pub fn write_sysctls(owner: &str, sysctls: &Sysctls, filter: impl Fn(&str) -> bool) -> Result<()> {
    for (key, value) in sysctls.iter().filter(|(key, _)| filter(key)) {
        write(owner, key, value)?;
    }
    Ok(())
}

/// Writes the sysctls of interfaces, which exist only after the links. To be called in the node's namespace.
pub fn write_interface_sysctls(node: &Node) -> Result<()> {
    write_sysctls(&owner(node), &node.sysctls, |key| interface_of(key).is_some())
}

/// Writes the sysctls of a node on the host's kernel, except the congestion control: see `World::congestion_control`.
pub fn write_host_sysctls(node: &Node) -> Result<()> {
    write_sysctls(&owner(node), &node.sysctls, |key| interface_of(key).is_none() && key != CONGESTION_CONTROL)
}

/// Writes the sysctls of many nodes that do not belong to an interface.
#[derive(Default)]
pub struct NodeSysctls<'a> {
    /// Original values of the keys that were written in the root namespace.
    defaults: BTreeMap<&'a str, String>,
    /// Values in a new namespace, as far as they were read; None: not readable.
    inherited: HashMap<&'a str, Option<String>>,
}

impl<'a> NodeSysctls<'a> {
    /// Writes the values of the majority. To be called in the root namespace, before others are created.
    pub fn prepare(nodes: &[&'a Node]) -> Result<Self> {
        let shared = majority_values(nodes.iter().map(|node| &node.sysctls));
        let mut defaults = BTreeMap::new();
        if !shared.is_empty() {
            write("all nodes", INHERIT, "1")?;
        }
        for (key, value) in shared {
            // An equal value is written only if the write has side effects.
            if let Some(old) = read(key).filter(|old| has_side_effects(key) || !is_equal(old, value)) {
                write("all nodes", key, value)?;
                defaults.insert(key, old);
            }
        }
        Ok(Self { defaults, inherited: HashMap::new() })
    }

    /// Writes a node's values that differ from the inherited ones. To be called in the node's new namespace.
    pub fn write(&mut self, node: &'a Node) -> Result<()> {
        let mut values: BTreeMap<&str, String> =
            self.defaults.iter().map(|(key, value)| (*key, value.clone())).collect();
        for (key, value) in node.sysctls.iter().filter(|(key, _)| interface_of(key).is_none()) {
            values.insert(key, value.clone());
        }
        // All values are read before any is written, because some writes have side effects.
        for key in values.keys() {
            self.inherited.entry(key).or_insert_with(|| read(key));
        }
        for (key, value) in to_write(&values, &self.inherited) {
            write(&owner(node), key, value)?;
        }
        Ok(())
    }
}

fn owner(node: &Node) -> String {
    format!("node {}", node.name)
}

/// Writes the plan's module parameters. To be called before the modules are used.
pub fn write_parameters(plan: &Plan) -> Result<()> {
    for (name, value) in &plan.parameters {
        let path =
            parameter_path(name).ok_or_else(|| Failure::new(format!("{name:?} is not MODULE/PARAMETER")))?;
        write_file(&path, value).with_context(|| format!("lab {}: parameter {name} = {value}", plan.lab))?;
    }
    Ok(())
}

/// The path of a parameter; None if the name is not MODULE/PARAMETER.
fn parameter_path(name: &str) -> Option<String> {
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let (module, parameter) = name.split_once('/').filter(|(a, b)| is_word(a) && is_word(b))?;
    Some(format!("/sys/module/{module}/parameters/{parameter}"))
}

fn write_file(path: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(value.as_bytes()))
}

fn write(owner: &str, key: &str, value: &str) -> Result<()> {
    write_file(&format!("/proc/sys/{key}"), value).with_context(|| format!("{owner}: sysctl {key} = {value}"))
}

fn read(key: &str) -> Option<String> {
    let mut value = [0; 4096];
    let length = read_proc_file(&format!("/proc/sys/{key}"), &mut value).ok()?;
    String::from_utf8(value[..length].to_vec()).ok()
}

/// Reads a file of /proc with one system call. Fails if it does not fit into the buffer.
pub fn read_proc_file(path: &str, buffer: &mut [u8]) -> io::Result<usize> {
    let length = File::open(path)?.read(buffer)?;
    if length == buffer.len() {
        return Err(io::Error::other(format!("{path} is longer than expected")));
    }
    Ok(length)
}

/// Inherited keys with the value that more than half of the nodes have.
fn majority_values<'a>(nodes: impl ExactSizeIterator<Item = &'a Sysctls>) -> BTreeMap<&'a str, &'a str> {
    let half = nodes.len() / 2;
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (key, value) in nodes.flatten().filter(|(key, _)| is_inherited(key)) {
        *counts.entry((key, value)).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > half).map(|(sysctl, _)| sysctl).collect()
}

fn is_inherited(key: &str) -> bool {
    let is_interface_default = |family: &str| {
        let scope = key.strip_prefix(family).and_then(|rest| rest.strip_prefix("/conf/"));
        scope.is_some_and(|rest| rest.starts_with("all/") || rest.starts_with("default/"))
    };
    let is_safe = !has_side_effects(key) || key.ends_with("/disable_ipv6");
    is_safe
        && (is_interface_default("net/ipv4")
            || is_interface_default("net/ipv6")
            || ["net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", CONGESTION_CONTROL].contains(&key))
}

/// Whether writing a key changes other keys, too.
fn has_side_effects(key: &str) -> bool {
    key.ends_with("forward") || key.ends_with("forwarding") || key.starts_with("net/ipv6/conf/all/")
}

/// The values to write in a new namespace, in order: those that differ from `inherited`, and all after a write with
/// side effects.
fn to_write<'a>(
    values: &'a BTreeMap<&str, String>,
    inherited: &HashMap<&str, Option<String>>,
) -> Vec<(&'a str, &'a str)> {
    let mut side_effects = false;
    let mut writes = Vec::new();
    for (key, value) in values {
        let current = inherited.get(key).and_then(Option::as_deref);
        if side_effects || !current.is_some_and(|current| is_equal(current, value)) {
            writes.push((*key, value.as_str()));
            side_effects |= has_side_effects(key);
        }
    }
    writes
}

/// Compares values regardless of white space: the kernel separates numbers by tabs.
fn is_equal(a: &str, b: &str) -> bool {
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
    fn interface_keys_are_recognized() {
        assert_eq!(interface_of("net/ipv4/conf/eth0/forwarding"), Some("eth0"));
        assert_eq!(interface_of("net/ipv6/neigh/eth1/retrans_time_ms"), Some("eth1"));
        assert_eq!(interface_of("net/ipv4/conf/default/forwarding"), None);
        assert_eq!(interface_of("net/ipv4/conf/all/forwarding"), None);
        assert_eq!(interface_of("net/ipv4/tcp_congestion_control"), None);
    }

    #[test]
    fn a_parameter_is_a_file_of_its_module() {
        let file = "/sys/module/tcp_cubic/parameters/hystart";
        assert_eq!(parameter_path("tcp_cubic/hystart").as_deref(), Some(file));
        for other in
            ["hystart", "/hystart", "tcp_cubic/", "../hystart", "tcp_cubic/../x", "tcp_cubic/x/y", "a b/c"]
        {
            assert_eq!(parameter_path(other), None, "{other}");
        }
    }

    #[test]
    fn majority_values_of_inherited_keys_are_shared() {
        let (rp, ecn) = ("net/ipv4/conf/all/rp_filter", "net/ipv4/tcp_ecn");
        let nodes =
            [sysctls(&[(rp, "0"), (ecn, "1")]), sysctls(&[(rp, "0"), (ecn, "1")]), sysctls(&[(rp, "1")])];
        assert_eq!(majority_values(nodes.iter()), BTreeMap::from([(rp, "0")]));
        assert!(majority_values(nodes[1..].iter()).is_empty(), "half is not a majority");
        assert!(!is_inherited("net/ipv4/conf/all/forwarding"));
        assert!(is_inherited("net/ipv6/conf/all/disable_ipv6"));
    }

    #[test]
    fn only_different_values_are_written() {
        let values = BTreeMap::from([
            ("net/ipv4/tcp_ecn", "1".to_owned()),
            ("net/ipv4/tcp_rmem", "4096 131072 6291456".to_owned()),
            ("net/ipv4/tcp_sack", "1".to_owned()),
        ]);
        let inherited = HashMap::from([
            ("net/ipv4/tcp_ecn", Some("2\n".to_owned())),
            ("net/ipv4/tcp_rmem", Some("4096\t131072\t6291456\n".to_owned())),
            ("net/ipv4/tcp_sack", None),
        ]);
        assert_eq!(to_write(&values, &inherited), [("net/ipv4/tcp_ecn", "1"), ("net/ipv4/tcp_sack", "1")]);
    }

    /// ip_forward = 1 sets accept_redirects = 0 as well.
    #[test]
    fn all_values_are_written_after_a_side_effect() {
        let values = BTreeMap::from([
            ("net/ipv4/conf/all/accept_redirects", "1".to_owned()),
            ("net/ipv4/ip_forward", "1".to_owned()),
            ("net/ipv4/tcp_sack", "1".to_owned()),
        ]);
        let writes = |forward: &str| {
            let mut current: HashMap<_, _> =
                values.keys().map(|key| (*key, Some(String::from("1")))).collect();
            current.insert("net/ipv4/ip_forward", Some(forward.to_owned()));
            to_write(&values, &current)
        };
        assert_eq!(writes("0"), [("net/ipv4/ip_forward", "1"), ("net/ipv4/tcp_sack", "1")]);
        assert!(writes("1").is_empty());
    }
}
