//! The options that every command takes.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command};
use serde_json_path::JsonPath;

use crate::output::Format;
use crate::units;

/// Options every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Context to use (see `rackwright context list`)
    #[arg(long, global = true, env = "RACKWRIGHT_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Server to use instead of the context's servers; repeat the option for several, tried in order
    #[arg(
        long,
        global = true,
        env = "RACKWRIGHT_SERVER",
        value_name = "URL",
        value_delimiter = ','
    )]
    pub server: Vec<String>,
    /// Output format
    #[arg(short, long, global = true, value_parser = OutputParser, default_value = "table")]
    pub output: Output,
    /// Print only results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Time limit of each call to the server (not of waiting)
    #[arg(long, global = true, value_name = "TIME", value_parser = units::parse_duration, default_value = "30s")]
    pub call_timeout: Duration,
}

/// What `--output` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// For people.
    Table,
    /// For people, with more columns and whole lines.
    Wide,
    Json,
    Yaml,
    Name,
    /// The parts of the JSON at this path.
    JsonPath(JsonPath),
    Csv,
}

/// The names of the formats, with their help. The last part of the name `jsonpath=` is the path.
static FORMATS: [(&str, &str); 7] = [
    ("table", "For people"),
    ("wide", "For people: more columns, and lines that are not cut"),
    (
        "json",
        "JSON with the API's field names; streams write one object per line",
    ),
    ("yaml", "The same content in YAML"),
    ("name", "Resource names only, one per line"),
    (
        JSON_PATH,
        "Parts of the JSON at a path (RFC 9535), which follows the equals sign",
    ),
    ("csv", "Comma-separated values, only for reports of `usage`"),
];

const JSON_PATH: &str = "jsonpath=";

impl Output {
    /// The format of every output except reports in CSV.
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Table | Self::Wide | Self::Csv => Format::Table,
            Self::Json | Self::JsonPath(_) => Format::Json,
            Self::Yaml => Format::Yaml,
            Self::Name => Format::Name,
        }
    }

    pub(crate) fn path(&self) -> Option<JsonPath> {
        match self {
            Self::JsonPath(path) => Some(path.clone()),
            _ => None,
        }
    }

    /// Reads `json`, or `jsonpath=PATH`.
    fn parse(text: String) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix(JSON_PATH) {
            return json_path(path).map(Self::JsonPath);
        }
        match text.as_str() {
            "table" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            "name" => Ok(Self::Name),
            "csv" => Ok(Self::Csv),
            _ => Err("unknown format".to_owned()),
        }
    }
}

fn json_path(text: &str) -> Result<JsonPath, String> {
    JsonPath::parse(text).map_err(|fault| {
        let before = text.get(..fault.position()).unwrap_or(text);
        let character = before.chars().count() + 1;
        let reason = match fault.message() {
            _ if before.is_empty() => "a path begins with $, as in $[*].name",
            // The parser's words for any unexpected character.
            "parser error" => "no part of a path begins here",
            message => message,
        };
        format!("the JSONPath has a fault at character {character}: {reason}")
    })
}

/// Reads `--output`. The names are those of `FORMATS`, for help and completion.
#[derive(Debug, Clone)]
struct OutputParser;

impl OutputParser {
    fn names() -> PossibleValuesParser {
        PossibleValuesParser::new(FORMATS.map(|(name, help)| PossibleValue::new(name).help(help)))
    }
}

impl TypedValueParser for OutputParser {
    type Value = Output;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Output, clap::Error> {
        let is_path = value.to_str().is_some_and(|text| text.starts_with(JSON_PATH));
        if !is_path {
            // Refuses other names than the known ones.
            Self::names().parse_ref(command, arg, value)?;
        }
        StringValueParser::new()
            .try_map(Output::parse)
            .parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            FORMATS.iter().map(|(name, help)| PossibleValue::new(*name).help(*help)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_format_is_read() {
        for (name, _) in FORMATS {
            let text = if name == JSON_PATH { "jsonpath=$.a" } else { name };
            assert!(Output::parse(text.to_owned()).is_ok(), "{text}");
        }
        assert!(Output::parse("xml".to_owned()).is_err());
        let path = Output::parse("jsonpath=$[*].name".to_owned()).unwrap();
        assert_eq!((path.format(), path.path().is_some()), (Format::Json, true));
        assert_eq!(Output::Wide.path(), None);
    }

    #[test]
    fn a_faulty_path_is_refused_at_its_place() {
        let fault = |path: &str| json_path(path).unwrap_err();
        assert_eq!(
            fault("name"),
            "the JSONPath has a fault at character 1: a path begins with $, as in $[*].name"
        );
        assert!(
            fault("$.a b").contains("at character 4: no part of a path"),
            "{}",
            fault("$.a b")
        );
        for wrong in ["", "$[", "$.a b", "$[?@.a ==]"] {
            assert!(fault(wrong).contains("a fault at character "), "{wrong}");
        }
    }
}
