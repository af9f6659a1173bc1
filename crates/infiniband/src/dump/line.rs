//! Parses one line of a dump.

use crate::guid::Guid;
use crate::model::DeviceKind;

/// The kinds of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// An empty line.
    Blank,
    /// A comment or a chassis heading.
    Remark(&'a str),
    /// `vendid=`.
    Vendor(u32),
    /// `devid=`.
    Model(u32),
    /// `sysimgguid=`, and the rest of the line.
    System(Option<Guid>, &'a str),
    /// `switchguid=0x..(..)`: the GUID, the GUID of port 0, and the rest of the line.
    SwitchGuid(Option<Guid>, Option<Guid>, &'a str),
    /// `caguid=` or `rtguid=`. The following header repeats the GUID.
    AdapterGuid,
    /// `Switch`, `Ca` or `Rt`.
    Header(Header<'a>),
    /// `[n]`.
    Port(PortLine<'a>),
}

/// `Switch 64 "S-0002c90200417670" # "description" enhanced port 0 lid 18 lmc 0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub(super) kind: DeviceKind,
    pub(super) ports: u8,
    pub(super) guid: Guid,
    pub(super) name: &'a str,
    pub(super) enhanced: bool,
    pub(super) lid: u32,
    pub(super) lmc: u8,
    pub(super) note: &'a str,
}

/// `[1](2c90300080d59) "S-0008f10500108bba"[9] # lid 1 lmc 0 "description" lid 7 4xQDR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortLine<'a> {
    pub(super) number: u8,
    pub(super) outside: &'a str,
    pub(super) guid: Option<Guid>,
    /// LID and LMC of the port itself. Lines of switch ports do not have them.
    pub(super) own: Option<(u32, u8)>,
    pub(super) peer: Option<Peer<'a>>,
    /// `4xNDR` and the rest of the line.
    pub(super) rate: &'a str,
}

/// The far end in a port's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer<'a> {
    pub(super) kind: DeviceKind,
    pub(super) guid: Guid,
    pub(super) port: u8,
    pub(super) port_guid: Option<Guid>,
    pub(super) name: &'a str,
    pub(super) lid: u32,
}

/// Parses a line. `None`: the line has no known form.
pub(super) fn parse(line: &str) -> Option<Line<'_>> {
    let line = line.trim_end();
    let trimmed = line.trim_start();
    match trimmed.chars().next() {
        None => return Some(Line::Blank),
        Some('#') => return Some(Line::Remark(line)),
        Some('[') => return port(trimmed).map(Line::Port),
        Some(_) => {}
    }
    if trimmed.starts_with("Chassis ") {
        return Some(Line::Remark(line));
    }
    if let Some((key, value)) = trimmed.split_once('=')
        && !key.contains(char::is_whitespace)
    {
        return assignment(key, value);
    }
    header(trimmed).map(Line::Header)
}

fn assignment<'a>(key: &str, value: &'a str) -> Option<Line<'a>> {
    let mut rest = LineRest(value);
    match key {
        "vendid" => Some(Line::Vendor(u32::try_from(rest.hex()?).ok()?)),
        "devid" => Some(Line::Model(u32::try_from(rest.hex()?).ok()?)),
        "sysimgguid" => Some(Line::System(Guid::new(rest.hex()?), rest.0.trim())),
        "switchguid" => {
            let guid = Guid::new(rest.hex()?);
            let port0 = rest.in_parentheses();
            Some(Line::SwitchGuid(guid, port0, rest.0.trim()))
        }
        "caguid" | "rtguid" => rest.hex().map(|_| Line::AdapterGuid),
        _ => None,
    }
}

fn header(line: &str) -> Option<Header<'_>> {
    let (word, rest) = line.split_once(char::is_whitespace)?;
    let kind = match word {
        "Switch" => DeviceKind::Switch,
        "Ca" => DeviceKind::ChannelAdapter,
        "Rt" => DeviceKind::Router,
        _ => return None,
    };
    let mut rest = LineRest(rest.trim_start());
    let ports = rest.number()?;
    rest.blank();
    let (_, guid) = rest.id()?;
    rest.blank();
    let mut head = Header {
        kind,
        ports,
        guid,
        name: "",
        enhanced: true,
        lid: 0,
        lmc: 0,
        note: "",
    };
    if !rest.eat("#") {
        return rest.0.is_empty().then_some(head);
    }
    rest.blank();
    let text = rest.0.strip_prefix('"')?;
    if kind != DeviceKind::Switch {
        let end = text.rfind('"')?;
        (head.name, head.note) = (&text[..end], text[end + 1..].trim());
        return Some(head);
    }
    let (end, enhanced, mark) = [("\" enhanced port 0 lid ", true), ("\" base port 0 lid ", false)]
        .into_iter()
        .filter_map(|(mark, enhanced)| Some((text.rfind(mark)?, enhanced, mark)))
        .max_by_key(|(end, _, _)| *end)
        .or_else(|| Some((text.rfind('"')?, true, "\"")))?;
    (head.name, head.enhanced) = (&text[..end], enhanced);
    let mut rest = LineRest(&text[end + mark.len()..]);
    if mark.len() > 1 {
        head.lid = rest.number()?;
        rest.blank();
        head.lmc = if rest.eat("lmc ") { rest.number()? } else { 0 };
    }
    head.note = rest.0.trim();
    Some(head)
}

fn port(line: &str) -> Option<PortLine<'_>> {
    let mut rest = LineRest(line);
    let number = rest.in_brackets()?;
    let outside = rest.outside();
    let guid = rest.in_parentheses();
    let mut found = PortLine {
        number,
        outside,
        guid,
        own: None,
        peer: None,
        rate: "",
    };
    rest.blank();
    if rest.0.is_empty() || rest.0.starts_with('#') {
        return Some(found);
    }
    let (kind, guid) = rest.id()?;
    let port = rest.in_brackets()?;
    rest.outside();
    rest.blank();
    let port_guid = rest.in_parentheses();
    rest.blank();
    let mut peer = Peer {
        kind,
        guid,
        port,
        port_guid,
        name: "",
        lid: 0,
    };
    if rest.eat("#") {
        rest.blank();
        if rest.eat("lid ") {
            let lid = rest.number()?;
            rest.blank();
            let lmc = if rest.eat("lmc ") { rest.number()? } else { 0 };
            found.own = Some((lid, lmc));
            rest.blank();
        }
        let text = rest.0.strip_prefix('"')?;
        let end = text.rfind("\" lid ")?;
        peer.name = &text[..end];
        let mut tail = LineRest(&text[end + "\" lid ".len()..]);
        peer.lid = tail.number()?;
        found.rate = tail.0.trim();
    } else if !rest.0.is_empty() {
        return None;
    }
    found.peer = Some(peer);
    Some(found)
}

/// The unread rest of a line.
struct LineRest<'a>(&'a str);

impl<'a> LineRest<'a> {
    fn blank(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.0.strip_prefix(word);
        self.0 = found.unwrap_or(self.0);
        found.is_some()
    }

    fn run(&mut self, of: impl Fn(char) -> bool) -> &'a str {
        let (run, rest) = self.0.split_at(self.0.find(|c| !of(c)).unwrap_or(self.0.len()));
        self.0 = rest;
        run
    }

    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.run(|c| c.is_ascii_digit()).parse().ok()
    }

    fn hex(&mut self) -> Option<u64> {
        let _ = self.eat("0x");
        u64::from_str_radix(self.run(|c| c.is_ascii_hexdigit()), 16).ok()
    }

    /// `[7]`.
    fn in_brackets(&mut self) -> Option<u8> {
        let number = self.eat("[").then(|| self.number())??;
        self.eat("]").then_some(number)
    }

    /// `[ext 7]`, or another bracket that is not a plain number.
    fn outside(&mut self) -> &'a str {
        let end = self.0.find(']').filter(|_| self.0.starts_with('['));
        let (bracket, rest) = self.0.split_at(end.map_or(0, |end| end + 1));
        self.0 = rest;
        bracket
    }

    /// `(2c90300080d59)`. Anything else stays unread.
    fn in_parentheses(&mut self) -> Option<Guid> {
        let mut ahead = LineRest(self.0);
        let number = ahead.eat("(").then(|| ahead.hex())??;
        if !ahead.eat(")") {
            return None;
        }
        self.0 = ahead.0;
        Guid::new(number)
    }

    /// `"H-0002c90300080d58"`.
    fn id(&mut self) -> Option<(DeviceKind, Guid)> {
        let kind = match self.0.get(..3)? {
            "\"S-" => DeviceKind::Switch,
            "\"H-" => DeviceKind::ChannelAdapter,
            "\"R-" => DeviceKind::Router,
            _ => return None,
        };
        self.0 = &self.0[3..];
        let guid = Guid::new(self.hex()?)?;
        self.eat("\"").then_some((kind, guid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_may_hold_what_looks_like_the_rest_of_the_line() {
        let text = "[1]\t\"S-0008f10500108c5c\"[15]\t\t# \"a \" lid 7 4xSDR # \"b\" lid 16 4xQDR";
        let Some(Line::Port(port)) = parse(text) else {
            panic!("not a port")
        };
        let peer = port.peer.expect("a peer");
        assert_eq!(
            (peer.name, peer.lid, port.rate),
            ("a \" lid 7 4xSDR # \"b", 16, "4xQDR")
        );
        let text =
            "Switch\t36 \"S-0008f10500200b50\"\t\t# \"x\" base port 0 lid 1\" enhanced port 0 lid 9 lmc 2 plane 1";
        let Some(Line::Header(head)) = parse(text) else {
            panic!("not a header")
        };
        assert_eq!(
            (head.name, head.enhanced, head.lid, head.lmc),
            ("x\" base port 0 lid 1", true, 9, 2)
        );
        assert_eq!(head.note, "plane 1");
    }

    #[test]
    fn broken_lines_are_nothing() {
        for text in [
            "Switch",
            "Switch x \"S-1\"",
            "Switch 300 \"S-0000000000000001\"",
            "[1",
            "[999]\t\"S-1\"[1]",
            "[1]\t\"X-0000000000000001\"[1]",
            "[1]\t\"S-0000000000000000\"[1]",
            "[1]\t\"S-0000000000000001\"[1] junk",
            "[1]\t\"H-0000000000000001\"[1](1) # \"n",
            "vendid=zz",
            "switchguid=",
            "nonsense",
            "\"é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
