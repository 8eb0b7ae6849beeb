// SPDX-License-Identifier: Apache-2.0
//! `place.json` (docs/formats.md §5): the node that a container runs, and the dilation of its lab time.

use crate::failure::{Context, Failure, Result};
use serde::Deserialize;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    version: u32,
    pub node: usize,
    /// Nodes on the host's kernel; all others are guests.
    #[serde(default)]
    pub host_kernel: Vec<usize>,
    pub dilation: u32,
    /// Whether frames of a TCP stream cross between containers as one GSO packet.
    #[serde(default)]
    pub gso: bool,
    pub start: Start,
    /// Kernel command line of the node's guest, without the part that the container adds. Empty if the node is no
    /// guest.
    #[serde(default)]
    pub boot: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Start {
    #[serde(rename = "on go")]
    OnCommand,
    #[serde(rename = "at once")]
    Immediately,
}

impl Place {
    /// Reads `place.json`; None if the file does not exist.
    pub fn read(folder: &str, nodes: usize) -> Result<Option<Self>> {
        let path = Path::new(folder).join("place.json");
        let context = || "place.json".to_owned();
        if !path.exists() {
            return Ok(None);
        }
        let place: Self = serde_json::from_str(&std::fs::read_to_string(path).with_context(context)?)
            .with_context(context)?;
        place.validate(nodes).map(Some)
    }

    fn validate(self, nodes: usize) -> Result<Self> {
        let invalid = |problem: String| Err(Failure::new(format!("place.json: {problem}")));
        if self.version != 1 {
            return invalid(format!("version is 1, not {}", self.version));
        }
        if let Some(node) = self.host_kernel.iter().chain([&self.node]).find(|node| **node >= nodes) {
            return invalid(format!("the plan has no node {node}"));
        }
        if self.boot.is_empty() != self.host_kernel.contains(&self.node) {
            return invalid(format!("`boot` must be set if and only if node {} is a guest", self.node));
        }
        if self.dilation == 0 {
            return invalid("dilation must be at least 1".into());
        }
        if self.gso && self.dilation != 1 {
            return invalid(format!("`gso` requires dilation 1, not {}", self.dilation));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example_is_valid() {
        let formats = include_str!("../../../../docs/formats.md");
        let text =
            formats.split("place.json            ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        let place = serde_json::from_str::<Place>(text).unwrap().validate(3).unwrap();
        assert_eq!((place.node, place.dilation, place.start), (2, 50, Start::OnCommand));
        assert_eq!(place.host_kernel, [0, 1]);
        assert!(place.clone().validate(2).is_err());
        assert_eq!(place.boot[0], "mem=128M");
        let refusal = |place: Place| place.validate(3).unwrap_err().to_string();
        assert!(refusal(Place { boot: Vec::new(), ..place.clone() }).contains("if and only if node 2 is"));
        assert!(refusal(Place { gso: true, ..place.clone() }).contains("dilation 1, not 50"));
        assert!(refusal(Place { node: 1, ..place }).contains("node 1"));
    }
}
