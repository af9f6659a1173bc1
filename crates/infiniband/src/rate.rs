//! Widths and speeds of links.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of lanes of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Width {
    /// One lane.
    #[serde(rename = "1x")]
    X1,
    /// Two lanes: HDR100 and NDR200 on split ports.
    #[serde(rename = "2x")]
    X2,
    /// Four lanes.
    #[serde(rename = "4x")]
    X4,
    /// Eight lanes.
    #[serde(rename = "8x")]
    X8,
    /// Twelve lanes.
    #[serde(rename = "12x")]
    X12,
}

impl Width {
    /// All widths, narrowest first.
    pub const ALL: [Self; 5] = [Self::X1, Self::X2, Self::X4, Self::X8, Self::X12];

    /// The number of lanes.
    pub fn lanes(self) -> u32 {
        match self {
            Self::X1 => 1,
            Self::X2 => 2,
            Self::X4 => 4,
            Self::X8 => 8,
            Self::X12 => 12,
        }
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x", self.lanes())
    }
}

impl FromStr for Width {
    type Err = BadRate;

    /// Parses `4x` and `4`.
    fn from_str(text: &str) -> Result<Self, BadRate> {
        let digits = text.strip_suffix(['x', 'X']).unwrap_or(text);
        let found = Self::ALL.into_iter().find(|width| width.lanes().to_string() == digits);
        found.ok_or_else(|| BadRate::of(text))
    }
}

/// The signalling rate of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Speed {
    /// 2.5 Gb/s per lane, 2 Gb/s of data.
    Sdr,
    /// 5 Gb/s per lane, 4 Gb/s of data.
    Ddr,
    /// 10 Gb/s per lane, 8 Gb/s of data.
    Qdr,
    /// 10.3125 Gb/s per lane with the coding of FDR.
    Fdr10,
    /// 14.0625 Gb/s per lane.
    Fdr,
    /// 25 Gb/s per lane.
    Edr,
    /// 50 Gb/s per lane.
    Hdr,
    /// 100 Gb/s per lane.
    Ndr,
    /// 200 Gb/s per lane.
    Xdr,
}

impl Speed {
    /// All speeds, slowest first.
    pub const ALL: [Self; 9] = [
        Self::Sdr,
        Self::Ddr,
        Self::Qdr,
        Self::Fdr10,
        Self::Fdr,
        Self::Edr,
        Self::Hdr,
        Self::Ndr,
        Self::Xdr,
    ];

    /// The name in the output of `ibnetdiscover`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sdr => "SDR",
            Self::Ddr => "DDR",
            Self::Qdr => "QDR",
            Self::Fdr10 => "FDR10",
            Self::Fdr => "FDR",
            Self::Edr => "EDR",
            Self::Hdr => "HDR",
            Self::Ndr => "NDR",
            Self::Xdr => "XDR",
        }
    }

    /// The nominal data rate of one lane, in Gb/s. Up to QDR, this is the rate after 8b/10b coding.
    pub fn lane_gbps(self) -> f64 {
        match self {
            Self::Sdr => 2.0,
            Self::Ddr => 4.0,
            Self::Qdr => 8.0,
            Self::Fdr10 => 10.0,
            Self::Fdr => 14.0,
            Self::Edr => 25.0,
            Self::Hdr => 50.0,
            Self::Ndr => 100.0,
            Self::Xdr => 200.0,
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Speed {
    type Err = BadRate;

    fn from_str(text: &str) -> Result<Self, BadRate> {
        let found = Self::ALL
            .into_iter()
            .find(|speed| speed.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| BadRate::of(text))
    }
}

/// Width and speed of a link that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rate {
    /// Lanes.
    pub width: Width,
    /// The speed of each lane.
    pub speed: Speed,
}

impl Rate {
    /// Four lanes at this speed.
    pub fn x4(speed: Speed) -> Self {
        Self {
            width: Width::X4,
            speed,
        }
    }

    /// The data rate in each direction, in Gb/s.
    pub fn gbps(self) -> f64 {
        f64::from(self.width.lanes()) * self.speed.lane_gbps()
    }

    /// The slower of two rates: the rate of a link with different ends.
    pub fn slower(self, other: Self) -> Self {
        if other.gbps() < self.gbps() { other } else { self }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.width, self.speed)
    }
}

impl FromStr for Rate {
    type Err = BadRate;

    /// Parses `4xNDR`.
    fn from_str(text: &str) -> Result<Self, BadRate> {
        let split = text.find(['x', 'X']).ok_or_else(|| BadRate::of(text))?;
        let (width, speed) = text.split_at(split);
        Ok(Self {
            width: width.parse()?,
            speed: speed.get(1..).unwrap_or_default().parse()?,
        })
    }
}

/// The text is not a width or a speed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a link rate: widths are 1x, 2x, 4x, 8x, 12x, speeds SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR, XDR"
)]
pub struct BadRate(String);

impl BadRate {
    fn of(text: &str) -> Self {
        Self(text.chars().take(40).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_is_read_as_it_is_written() {
        for width in Width::ALL {
            for speed in Speed::ALL {
                let rate = Rate { width, speed };
                assert_eq!(rate.to_string().parse(), Ok(rate));
            }
        }
        for text in ["", "x", "4x", "xNDR", "3xNDR", "4xÄ", "4x????", "Äx", "04xNDR"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn data_rates_are_those_that_links_are_sold_by() {
        assert_eq!(Rate::x4(Speed::Ndr).gbps(), 400.0);
        assert_eq!(Rate::x4(Speed::Qdr).gbps(), 32.0);
        assert_eq!(Rate::x4(Speed::Ndr).slower(Rate::x4(Speed::Hdr)), Rate::x4(Speed::Hdr));
    }
}
