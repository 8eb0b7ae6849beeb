// SPDX-License-Identifier: Apache-2.0
//! Batched netlink: many requests in one datagram. Only the last request of a datagram has NLM_F_ACK; the kernel
//! reports errors of the others without it, before the acknowledgement. A datagram therefore costs two system calls.

pub mod address;
pub mod generic;
pub mod link;
pub mod qdisc;
pub mod rate;
pub mod route;
pub mod tap;

use crate::failure::{Failure, Result};
use crate::socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub const HEADER_LEN: usize = 16;
/// Limit on the size of a datagram, below the default SO_SNDBUF.
const DATAGRAM_MAX: usize = 128 * 1024;
const NLA_HEADER_LEN: usize = 4;
/// `NLMSGERR_ATTR_MSG`: the extended error text.
const EXTENDED_ACK_MESSAGE: u16 = 1;

fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// A sequence of requests, each with the name of its object for errors.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    requests: Vec<(usize, String)>,
}

/// Start of an open nested attribute.
#[must_use]
pub struct Nest(usize);

impl Batch {
    /// Begins a request. `header` is the family's header (ifinfomsg, …). Attributes belong to the last request.
    pub fn request(&mut self, kind: u16, flags: i32, header: &[u8], object: impl Into<String>) -> &mut Self {
        self.finish();
        self.requests.push((self.bytes.len(), object.into()));
        let flags = (libc::NLM_F_REQUEST | flags) as u16;
        let sequence = self.requests.len() as u32;
        self.bytes.extend_from_slice(&(HEADER_LEN as u32).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&0u32.to_ne_bytes());
        self.raw(header)
    }

    /// Appends bytes, padded to a multiple of four.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(align(self.bytes.len()), 0);
        self
    }

    pub fn attribute(&mut self, kind: u16, payload: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(&((NLA_HEADER_LEN + payload.len()) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.raw(payload)
    }

    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    pub fn u64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Appends a NUL-terminated string.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = Vec::from(value);
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    pub fn begin(&mut self, kind: u16) -> Nest {
        let nest = Nest(self.bytes.len());
        self.attribute(kind, &[]);
        nest
    }

    pub fn end(&mut self, nest: Nest) -> &mut Self {
        let length = (self.bytes.len() - nest.0) as u16;
        self.bytes[nest.0..nest.0 + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Appends a `struct rtnexthop` with attributes.
    pub fn next_hop(&mut self, ifindex: u32, attributes: &Self) -> &mut Self {
        let length = 8 + attributes.bytes.len() as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&ifindex.to_ne_bytes());
        self.raw(&attributes.bytes)
    }

    /// Writes the length of the last request into its header.
    fn finish(&mut self) {
        if let Some((start, _)) = self.requests.last() {
            let length = (self.bytes.len() - start) as u32;
            self.bytes[*start..start + 4].copy_from_slice(&length.to_ne_bytes());
        }
    }

    /// The first request without its netlink header, as a test message.
    #[cfg(test)]
    pub fn body(&self) -> &[u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// Ranges of requests, each of which fits into a datagram.
    fn datagrams(&self) -> Vec<std::ops::Range<usize>> {
        let mut ranges = Vec::new();
        let mut first = 0;
        for i in 0..self.requests.len() {
            let end = self.requests.get(i + 1).map_or(self.bytes.len(), |next| next.0);
            if i > first && end - self.requests[first].0 > DATAGRAM_MAX {
                ranges.push(first..i);
                first = i;
            }
        }
        if first < self.requests.len() {
            ranges.push(first..self.requests.len());
        }
        ranges
    }
}

pub struct Netlink(OwnedFd);

impl Netlink {
    /// Opens a socket in the thread's current network namespace.
    pub fn open(protocol: i32) -> io::Result<Self> {
        let fd = socket::open(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        socket::set(&fd, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1i32)?;
        Ok(Self(fd))
    }

    /// Runs a batch. Returns the error of the first request that failed.
    pub fn run(&self, batch: Batch) -> Result<()> {
        let mut first = None;
        self.run_each(batch, |_, error| {
            first.get_or_insert(error);
        })?;
        first.map_or(Ok(()), |error| Err(Failure::new(error)))
    }

    /// Runs all requests of a batch. `on_error` gets the index and the error of each request that failed.
    pub fn run_each(&self, mut batch: Batch, mut on_error: impl FnMut(usize, String)) -> Result<()> {
        batch.finish();
        for range in batch.datagrams() {
            let last = range.end - 1;
            let from = batch.requests[range.start].0;
            let to = batch.requests.get(range.end).map_or(batch.bytes.len(), |next| next.0);
            let flags = batch.requests[last].0 + 6;
            let with_ack =
                u16::from_ne_bytes([batch.bytes[flags], batch.bytes[flags + 1]]) | libc::NLM_F_ACK as u16;
            batch.bytes[flags..flags + 2].copy_from_slice(&with_ack.to_ne_bytes());
            let failed =
                |error: io::Error| Failure::new(format!("{}: netlink: {error}", batch.requests[last].1));
            socket::send(&self.0, &batch.bytes[from..to]).map_err(failed)?;
            let mut acknowledged = false;
            while !acknowledged {
                let datagram = socket::receive(&self.0).map_err(failed)?;
                for message in messages(&datagram).filter(|m| m.kind == libc::NLMSG_ERROR as u16) {
                    let request = message.sequence as usize - 1;
                    acknowledged |= request == last;
                    if let Some(reason) = error_text(message.payload) {
                        on_error(request, format!("{}: {reason}", batch.requests[request].1));
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends a query with NLM_F_ACK and passes the reply to `each`. Returns the kernel's error code as an error.
    pub fn query(&self, mut query: Batch, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        query.finish();
        socket::send(&self.0, &query.bytes)?;
        loop {
            for message in messages(&socket::receive(&self.0)?) {
                if message.kind != libc::NLMSG_ERROR as u16 {
                    each(message.payload);
                    continue;
                }
                let code = u32_at(message.payload, 0).map_or(-libc::EBADMSG, |code| code as i32);
                return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
        }
    }

    /// Sends a dump request (or a single query) and passes every message of the reply to `each`.
    pub fn dump(&self, mut query: Batch, mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        query.finish();
        socket::send(&self.0, &query.bytes)?;
        loop {
            let datagram = socket::receive(&self.0)?;
            for message in messages(&datagram) {
                match i32::from(message.kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        return error_text(message.payload).map_or(Ok(()), |r| Err(io::Error::other(r)))
                    }
                    _ => each(message.kind, message.payload),
                }
            }
        }
    }
}

/// A socket that receives notifications of changes in a network namespace.
pub struct Subscription(OwnedFd);

impl Subscription {
    pub fn open(protocol: i32, groups: &[u32]) -> io::Result<Self> {
        const BUFFER_BYTES: i32 = 16 << 20;
        let fd = socket::open(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        socket::set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES)?;
        socket::bind_netlink(&fd)?;
        for group in groups {
            socket::set(&fd, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, *group as i32)?;
        }
        Ok(Self(fd))
    }

    /// Passes all pending messages to `each`.
    pub fn drain(&self, mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        while let Some(datagram) = socket::try_receive(&self.0)? {
            messages(&datagram).for_each(|message| each(message.kind, message.payload));
        }
        Ok(())
    }
}

impl AsFd for Subscription {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

struct Message<'a> {
    kind: u16,
    sequence: u32,
    payload: &'a [u8],
}

fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(datagram, 0)? as usize;
        let message = datagram.get(..length).filter(|m| m.len() >= HEADER_LEN)?;
        let kind = u16_at(message, 4)?;
        let sequence = u32_at(message, 8)?;
        datagram = datagram.get(align(length)..).unwrap_or(&[]);
        Some(Message { kind, sequence, payload: &message[HEADER_LEN..] })
    })
}

/// The error text of an NLMSG_ERROR payload; None for an acknowledgement. The extended text follows the copied request.
fn error_text(payload: &[u8]) -> Option<String> {
    let code = u32_at(payload, 0)? as i32;
    if code == 0 {
        return None;
    }
    let error = io::Error::from_raw_os_error(-code);
    let request_len = u32_at(payload, 4)? as usize;
    let extended = attributes(payload.get(4 + align(request_len)..).unwrap_or(&[]))
        .find(|a| a.0 == EXTENDED_ACK_MESSAGE);
    let extended = extended.map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
    Some(extended.map_or_else(|| error.to_string(), |text| format!("{error}: {text}")))
}

pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 2)? & libc::NLA_TYPE_MASK as u16;
        let payload = bytes.get(NLA_HEADER_LEN..length)?;
        bytes = bytes.get(align(length)..).unwrap_or(&[]);
        Some((kind, payload))
    })
}

/// The payload of the first attribute of a kind.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|a| a.0 == kind).map(|a| a.1)
}

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_has_the_kernels_layout() {
        let mut batch = Batch::default();
        batch.request(16, libc::NLM_F_CREATE, &[9; 4], "link x").text(3, "eth0");
        let nest = batch.begin(18);
        batch.u32(1, 7).end(nest);
        batch.finish();
        #[rustfmt::skip]
        let expected = [
            44, 0, 0, 0, 16, 0, 1, 4, 1, 0, 0, 0, 0, 0, 0, 0, // length, type, flags, sequence, port
            9, 9, 9, 9, // fixed header
            9, 0, 3, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0, // padded to 4
            12, 0, 18, 0, 8, 0, 1, 0, 7, 0, 0, 0, // nested
        ];
        assert_eq!(batch.bytes, expected);
    }

    #[test]
    fn long_batches_are_split_between_requests() {
        let mut batch = Batch::default();
        for i in 0..100 {
            batch.request(16, 0, &[], format!("{i}")).attribute(1, &[0; 4000]);
        }
        batch.finish();
        let ranges = batch.datagrams();
        assert!(ranges.len() > 1);
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, 100));
    }

    #[test]
    fn an_error_contains_the_extended_text() {
        let mut payload = (-libc::EINVAL).to_ne_bytes().to_vec();
        let mut request = Batch::default();
        request.request(16, 0, &[0; 16], "link").attribute(1, &[0; 5]);
        request.finish();
        payload.extend_from_slice(&request.bytes);
        let mut attribute = Batch::default();
        attribute.text(EXTENDED_ACK_MESSAGE, "rate is missing");
        payload.extend_from_slice(&attribute.bytes);
        assert_eq!(error_text(&payload).unwrap(), "Invalid argument (os error 22): rate is missing");
        assert_eq!(error_text(&payload[..4 + HEADER_LEN]).unwrap(), "Invalid argument (os error 22)");
        assert_eq!(error_text(&[0; 20]), None);
    }

    #[test]
    fn the_error_names_the_first_request_that_failed() {
        let netlink = Netlink::open(libc::NETLINK_ROUTE).unwrap();
        let mut links = 0;
        let mut query = Batch::default();
        query.request(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; 16], "links");
        netlink.dump(query, |kind, _| links += u32::from(kind == libc::RTM_NEWLINK)).unwrap();
        assert!(links >= 1);
        let mut batch = Batch::default();
        batch.request(libc::RTM_GETLINK, 0, &[0; 16], "link ?").text(libc::IFLA_IFNAME, "no-such");
        batch.request(libc::RTM_GETLINK, 0, &[0; 16], "link !").text(libc::IFLA_IFNAME, "nor-this");
        let failure = netlink.run(batch).unwrap_err().to_string();
        assert!(failure.starts_with("link ?: No such device"), "{failure}");
    }

    proptest! {
        #[test]
        fn attributes_round_trip(
            rows in prop::collection::vec((0u16..0x3fff, prop::collection::vec(any::<u8>(), 0..40)), 0..10),
        ) {
            let mut batch = Batch::default();
            for (kind, payload) in &rows {
                batch.attribute(*kind, payload);
            }
            let read: Vec<_> = attributes(&batch.bytes).map(|(kind, payload)| (kind, payload.to_vec())).collect();
            prop_assert_eq!(read, rows);
        }

        #[test]
        fn invalid_messages_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            messages(&bytes).for_each(drop);
            attributes(&bytes).for_each(drop);
            error_text(&bytes);
        }
    }
}
