//! Names for machines that were found.

/// What a name can be made of; empty: not known.
#[derive(Debug, Clone, Copy, Default)]
pub struct NameSource<'a> {
    /// A name that was given for just this machine.
    pub given: &'a str,
    /// The node of the site file that has its BMC at this address.
    pub site: &'a str,
    /// Serial number.
    pub serial: &'a str,
    /// UUID.
    pub uuid: &'a str,
    /// Rack.
    pub rack: &'a str,
    /// Rack unit.
    pub unit: &'a str,
    /// Address of the BMC, without a scheme.
    pub host: &'a str,
}

/// The longest name.
const NAME_MAX: usize = 63;

/// A name by a template: text with `{serial}`, `{uuid}`, `{rack}`, `{unit}`, `{site}` and `{address}` in it. Without one: the
/// name that was given, else the site file's, else the serial number.
///
/// # Errors
/// What is missing for it, or wrong with the template, in a sentence without an end.
pub fn node_name(template: &str, source: &NameSource<'_>) -> Result<String, String> {
    let serial = super::plausible_serial(source.serial).unwrap_or_default();
    let template = match template {
        "" => {
            let usual = [source.given, source.site, &serial]
                .into_iter()
                .find(|name| !name.is_empty());
            let usual =
                usual.ok_or("it has no serial number and the site file names no node at its address: give a name")?;
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
            return Err(format!("{template:?} needs its {field}, which is not known"));
        }
        made.push_str(before);
        made.push_str(value);
        rest = after;
    }
    made.push_str(rest);
    name(&made)
}

/// Makes a text a name: 1 to 63 of a-z, 0-9 and '-'.
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
        return Err(format!("{text:?} gives no name of 1 to {NAME_MAX} of a-z, 0-9 and '-'"));
    }
    Ok(made.to_owned())
}
