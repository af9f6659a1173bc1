//! Address ranges in the notations that people use, and the addresses in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A fault in one of the ranges.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct RangeFault {
    /// Index of the range in the list, from 0.
    pub index: usize,
    /// The fault and the fix.
    pub what: String,
}

/// Consecutive addresses of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    is_v6: bool,
    first: u128,
    last: u128,
}

impl Span {
    fn count(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    fn meets(self, other: Self) -> bool {
        self.is_v6 == other.is_v6 && self.first <= other.last && other.first <= self.last
    }
}

/// Addresses without duplicates, in order: IPv4 before IPv6.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranges {
    spans: Vec<Span>,
}

fn number(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(v4) => (false, u128::from(u32::from(v4))),
        IpAddr::V6(v6) => (true, u128::from(v6)),
    }
}

fn address(is_v6: bool, number: u128) -> IpAddr {
    if is_v6 {
        return Ipv6Addr::from(number).into();
    }
    Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into()
}

impl Ranges {
    /// Reads `10.0.0.0/22`, `10.0.0.5`, `10.0.0.5-10.0.0.90`, `10.0.0.5-90`, `fd00::/118` and the like, at most `max`
    /// addresses in all. The network and broadcast addresses of an IPv4 network larger than a /31 are omitted.
    ///
    /// # Errors
    /// Each invalid range has its fault. Too many addresses in all are a fault of the last range.
    pub fn parse(texts: &[String], max: u64) -> Result<Self, Vec<RangeFault>> {
        let (mut spans, mut faults) = (Vec::new(), Vec::new());
        for (index, text) in texts.iter().enumerate() {
            match span(text.trim()) {
                Ok(span) if span.count() > u128::from(max) => {
                    let what = format!(
                        "{text} holds {} addresses, but a discovery covers at most {max}: give smaller ranges",
                        span.count()
                    );
                    faults.push(RangeFault { index, what });
                }
                Ok(span) => spans.push(span),
                Err(what) => faults.push(RangeFault { index, what }),
            }
        }
        let ranges = Self { spans: merged(spans) };
        let total: u128 = ranges.spans.iter().map(|span| span.count()).sum();
        if faults.is_empty() && total > u128::from(max) {
            let what = format!(
                "the ranges hold {total} addresses together, but a discovery covers at most {max}: move some ranges \
                 to another discovery"
            );
            let index = texts.len().saturating_sub(1);
            faults.push(RangeFault { index, what });
        }
        if faults.is_empty() { Ok(ranges) } else { Err(faults) }
    }

    /// Number of addresses.
    #[must_use]
    pub fn len(&self) -> u64 {
        let total: u128 = self.spans.iter().map(|span| span.count()).sum();
        u64::try_from(total).unwrap_or(u64::MAX)
    }

    /// Whether there are no addresses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The address at this index, from 0.
    #[must_use]
    pub fn nth(&self, place: u64) -> Option<IpAddr> {
        let mut left = u128::from(place);
        for span in &self.spans {
            if left < span.count() {
                return Some(address(span.is_v6, span.first + left));
            }
            left -= span.count();
        }
        None
    }

    /// Whether the ranges contain an address.
    #[must_use]
    pub fn contains(&self, wanted: IpAddr) -> bool {
        let (is_v6, number) = number(wanted.to_canonical());
        let holds = |span: &Span| span.is_v6 == is_v6 && (span.first..=span.last).contains(&number);
        self.spans.iter().any(holds)
    }

    /// An address that is in both ranges. `None`: they do not overlap.
    #[must_use]
    pub fn meets(&self, other: &Self) -> Option<IpAddr> {
        let mut pairs = self.spans.iter().flat_map(|a| other.spans.iter().map(move |b| (a, b)));
        let (a, b) = pairs.find(|(a, b)| a.meets(**b))?;
        Some(address(a.is_v6, a.first.max(b.first)))
    }
}

fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if last.is_v6 == span.is_v6 && span.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(span.last);
            }
            _ => merged.push(span),
        }
    }
    merged
}

fn span(text: &str) -> Result<Span, String> {
    let (is_v6, first, last) = if let Some((network, length)) = text.split_once('/') {
        cidr(text, network, length)?
    } else if let Some((from, to)) = text.split_once('-') {
        from_to(text, from.trim(), to.trim())?
    } else {
        let (is_v6, number) = number(one(text)?);
        (is_v6, number, number)
    };
    for end in [address(is_v6, first), address(is_v6, last)] {
        let is_none = end.is_unspecified() || end.is_multicast() || end == IpAddr::V4(Ipv4Addr::BROADCAST);
        if is_none {
            return Err(format!("{text}: {end} is not an address of a machine"));
        }
    }
    Ok(Span { is_v6, first, last })
}

fn one(text: &str) -> Result<IpAddr, String> {
    let wrong = |_| {
        format!(
            "{text:?} is neither an address nor a range: write it like 10.0.0.0/22, 10.0.0.5-10.0.0.90 or fd00::/118"
        )
    };
    text.parse::<IpAddr>()
        .map(|address| address.to_canonical())
        .map_err(wrong)
}

fn cidr(text: &str, network: &str, length: &str) -> Result<(bool, u128, u128), String> {
    let (is_v6, number) = number(one(network)?);
    let bits: u32 = if is_v6 { 128 } else { 32 };
    let length: u32 = length
        .parse()
        .ok()
        .filter(|length| (1..=bits).contains(length))
        .ok_or_else(|| format!("{text}: the prefix length must be 1 to {bits}"))?;
    let hosts = match bits - length {
        128.. => u128::MAX,
        free => (1_u128 << free) - 1,
    };
    let first = number & !hosts;
    if first != number {
        let right = address(is_v6, first);
        return Err(format!(
            "{text} does not begin at a network address: the network is {right}/{length}"
        ));
    }
    // The network and broadcast addresses belong to no host. A /31 has neither (RFC 3021).
    if !is_v6 && length < 31 {
        return Ok((is_v6, first + 1, (first | hosts) - 1));
    }
    Ok((is_v6, first, first | hosts))
}

fn from_to(text: &str, from: &str, to: &str) -> Result<(bool, u128, u128), String> {
    let first = one(from)?;
    let last = match (first, to.parse::<u8>()) {
        (IpAddr::V4(v4), Ok(octet)) => {
            let [a, b, c, _] = v4.octets();
            IpAddr::from([a, b, c, octet])
        }
        _ => one(to)?,
    };
    let ((is_v6, first), (also_v6, last)) = (number(first), number(last));
    if is_v6 != also_v6 || last < first {
        return Err(format!(
            "{text}: the end is before the beginning, or in the other address family"
        ));
    }
    Ok((is_v6, first, last))
}
