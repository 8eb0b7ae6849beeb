// SPDX-License-Identifier: Apache-2.0
//! `place.json` (docs/formats.md §5): which node of the plan this container is, and how its paper time goes.

use crate::failure::{Failure, Of, Result};
use serde::Deserialize;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    version: u32,
    pub node: usize,
    /// The nodes on the host's kernel; all others are guests.
    #[serde(default)]
    pub host_kernel: Vec<usize>,
    pub dilation: u32,
    pub start: Start,
    /// The command line of the node's guest, but for what only the container knows. Empty: it has none.
    #[serde(default)]
    pub boot: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Start {
    #[serde(rename = "on go")]
    OnGo,
    #[serde(rename = "at once")]
    AtOnce,
}

impl Place {
    /// None: there is no such file.
    pub fn read(folder: &str, nodes: usize) -> Result<Option<Self>> {
        let path = Path::new(folder).join("place.json");
        let here = || "place.json".to_owned();
        if !path.exists() {
            return Ok(None);
        }
        let place: Self = serde_json::from_str(&std::fs::read_to_string(path).of(here)?).of(here)?;
        place.validate(nodes).map(Some)
    }

    fn validate(self, nodes: usize) -> Result<Self> {
        let wrong = |what: String| Err(Failure::new(format!("place.json: {what}")));
        if self.version != 1 {
            return wrong(format!("version is 1, not {}", self.version));
        }
        if let Some(node) = self.host_kernel.iter().chain([&self.node]).find(|node| **node >= nodes) {
            return wrong(format!("the plan has no node {node}"));
        }
        if self.boot.is_empty() != self.host_kernel.contains(&self.node) {
            return wrong(format!("`boot` is what node {} is started with, if it is a guest", self.node));
        }
        if self.dilation == 0 {
            return wrong("dilation is at least 1".into());
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contracts_example_is_read() {
        let contract = include_str!("../../../../docs/formats.md");
        let text =
            contract.split("place.json            ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        let place = serde_json::from_str::<Place>(text).unwrap().validate(3).unwrap();
        assert_eq!((place.node, place.dilation, place.start), (2, 50, Start::OnGo));
        assert_eq!(place.host_kernel, [0, 1]);
        assert!(place.clone().validate(2).is_err());
        assert_eq!(place.boot[0], "mem=128M");
        let refused = |place: Place| place.validate(3).unwrap_err().to_string();
        assert!(refused(Place { boot: Vec::new(), ..place.clone() }).contains("`boot` is what node 2 is"));
        assert!(refused(Place { node: 1, ..place }).contains("node 1"));
    }
}
