//! Names for discovered machines.

/// The values for a name. Empty: unknown.
#[derive(Debug, Clone, Copy, Default)]
pub struct NameSource<'a> {
    /// A name given for this machine.
    pub given: &'a str,
    /// The site file's node with a BMC at this address.
    pub site: &'a str,
    /// Serial number.
    pub serial: &'a str,
    /// UUID of the machine.
    pub uuid: &'a str,
    /// Name of the rack.
    pub rack: &'a str,
    /// Rack unit.
    pub unit: &'a str,
    /// Address of the BMC, without a scheme.
    pub host: &'a str,
}

/// Maximum length of a name, in characters.
const NAME_MAX: usize = 63;

/// Makes a name from a template: a text with `{serial}`, `{uuid}`, `{rack}`, `{unit}`, `{site}` and `{address}`. With
/// an empty template, the name is the given one, otherwise the site file's, otherwise the serial number.
///
/// # Errors
/// A value is missing or the template is invalid, as a sentence without a full stop.
pub fn node_name(template: &str, source: &NameSource<'_>) -> Result<String, String> {
    let serial = super::plausible_serial(source.serial).unwrap_or_default();
    let template = match template {
        "" => {
            let usual = [source.given, source.site, &serial]
                .into_iter()
                .find(|name| !name.is_empty());
            let usual =
                usual.ok_or("it has no serial number, and the site file has no node at its address: give a name")?;
            return name(usual);
        }
        template => template,
    };
    let (mut made, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        let (field, after) = after
            .split_once('}')
            .ok_or_else(|| format!("{template:?}: a {{ is not closed"))?;
        let value = match field {
            "serial" => &serial,
            "uuid" => source.uuid,
            "rack" => source.rack,
            "unit" => source.unit,
            "site" => source.site,
            "address" => source.host,
            _ => {
                return Err(format!(
                    "{template:?}: {{{field}}} is none of serial, uuid, rack, unit, site, address"
                ));
            }
        };
        if value.is_empty() {
            return Err(format!(
                "{template:?} needs the {field} of the machine, which is not known"
            ));
        }
        made.push_str(before);
        made.push_str(value);
        rest = after;
    }
    made.push_str(rest);
    name(&made)
}

/// Converts a text into a name: 1 to 63 of a-z, 0-9 and '-'.
fn name(text: &str) -> Result<String, String> {
    let mut made = String::new();
    for c in text.trim().chars().map(|c| c.to_ascii_lowercase()) {
        match c {
            'a'..='z' | '0'..='9' => made.push(c),
            _ if made.is_empty() || made.ends_with('-') => {}
            _ => made.push('-'),
        }
    }
    let made = made.trim_end_matches('-');
    if made.is_empty() || made.len() > NAME_MAX {
        return Err(format!(
            "{text:?} gives no valid name: a name has 1 to {NAME_MAX} characters of a-z, 0-9 and '-'"
        ));
    }
    Ok(made.to_owned())
}
