//! From YAML to checked node documents, with collection of all faults.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use rackwright_cli_context::error::{CliError, Fault};
use rackwright_cli_context::given::{read_beginning, read_password, yaml_files};
use rackwright_cli_context::{names, tls};
use rackwright_yaml::{Key, Spot, Tree, Value};
use secrecy::{ExposeSecret as _, SecretString};

/// Largest file, in bytes: some ten thousand nodes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// A node as a file describes it. A field that is `None` is left unchanged.
#[derive(Debug)]
pub struct Document {
    pub id: String,
    pub bmc: BmcDocument,
    pub sku: Option<String>,
    /// As the control plane stores them.
    pub boot_macs: Option<Vec<String>>,
    pub labels: Option<HashMap<String, String>>,
}

/// Its BMC.
#[derive(Debug)]
pub struct BmcDocument {
    pub address: String,
    pub username: String,
    pub password: SecretString,
    pub certificate_sha256: Option<String>,
    pub system: Option<String>,
}

/// Reads all files.
///
/// # Errors
/// `Manifest` with every fault of every file.
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Document>, CliError> {
    let mut documents = Vec::new();
    let mut faults = Vec::new();
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    for path in paths {
        for file in yaml_files(path)? {
            let text = read_file(&file)?;
            let before = faults.len();
            let mut reader = Reader {
                file: &file,
                faults: &mut faults,
            };
            for (at, document) in reader.documents(&text) {
                let place = format!("{}:{}", file.display(), at.line);
                match places.get(&document.id) {
                    Some(first) => {
                        reader.fault(at, format!("node {} is described twice, first at {first}", document.id))
                    }
                    None => {
                        places.insert(document.id.clone(), place);
                        documents.push(document);
                    }
                }
            }
            faults[before..].sort_by_key(|fault| (fault.line, fault.column));
        }
    }
    if !faults.is_empty() {
        return Err(CliError::Manifest(faults));
    }
    if documents.is_empty() {
        return Err(CliError::usage(
            "no document was found in the input",
            "a document begins with `kind: Node`",
        ));
    }
    Ok(documents)
}

fn read_file(path: &Path) -> Result<String, CliError> {
    let text = read_beginning("read", path, MAX_FILE_BYTES + 1)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(CliError::usage(
            format!("{} is larger than 16 MiB", path.display()),
            "split the file",
        ));
    }
    Ok(text)
}

/// Reads one file's documents, noting faults.
struct Reader<'a> {
    file: &'a Path,
    faults: &'a mut Vec<Fault>,
}

/// The fields of one mapping, taken one by one; fields left over are unknown.
struct Fields {
    at: Spot,
    what: &'static str,
    known: Vec<&'static str>,
    pairs: Vec<(Key, Tree)>,
}

impl Fields {
    fn take(&mut self, name: &'static str) -> Option<Tree> {
        self.known.push(name);
        let index = self.pairs.iter().position(|(key, _)| *key.name == *name)?;
        let (_, tree) = self.pairs.remove(index);
        (tree.value != Value::Null).then_some(tree)
    }
}

impl Reader<'_> {
    fn fault(&mut self, at: Spot, message: impl Into<String>) {
        let file = self.file.display().to_string();
        self.faults.push(Fault {
            file,
            line: at.line as usize,
            column: at.column as usize,
            message: message.into(),
        });
    }

    fn documents(&mut self, text: &str) -> Vec<(Spot, Document)> {
        let (trees, _) = rackwright_yaml::documents(0, text, |fault| self.fault(fault.at, fault.kind.to_string()));
        trees
            .into_iter()
            .filter_map(|tree| Some((tree.at, self.document(tree)?)))
            .collect()
    }

    /// One document; `None` after a fault that makes it unusable.
    fn document(&mut self, tree: Tree) -> Option<Document> {
        let mut fields = self.fields(tree, "a document")?;
        let kind = self.required(&mut fields, "kind");
        if let Some((at, kind)) = kind
            && kind != "Node"
        {
            self.fault(at, format!("`{kind}` is not a kind of document; the only kind is Node"));
            return None;
        }
        let id = self.required(&mut fields, "id");
        if let Some((at, id)) = &id
            && !names::is_id(id)
        {
            self.fault(
                *at,
                format!(
                    "`{id}` is not a node id: 1 to 63 characters of a-z, 0-9 and '-', a letter or digit first and last"
                ),
            );
        }
        let bmc = match fields.take("bmc") {
            Some(tree) => self.bmc(tree),
            None => {
                self.fault(fields.at, "`bmc` is missing");
                None
            }
        };
        let sku = fields
            .take("sku")
            .and_then(|tree| self.text(tree, "sku"))
            .map(|(_, sku)| sku);
        let boot_macs = fields.take("boot_macs").and_then(|tree| self.boot_macs(tree));
        let labels = fields.take("labels").and_then(|tree| self.labels(tree));
        self.finish(fields);
        Some(Document {
            id: id?.1,
            bmc: bmc?,
            sku,
            boot_macs,
            labels,
        })
    }

    fn bmc(&mut self, tree: Tree) -> Option<BmcDocument> {
        let mut fields = self.fields(tree, "bmc")?;
        let address = self.required(&mut fields, "address");
        if let Some((at, address)) = &address
            && ["https://", "ipmi://"]
                .iter()
                .find_map(|scheme| address.strip_prefix(scheme))
                .is_none_or(str::is_empty)
        {
            self.fault(
                *at,
                format!(
                    "`{address}` is not a BMC address: use https://HOST[:PORT][/BASE] or ipmi://HOST[:PORT]?mac=MAC"
                ),
            );
        }
        let username = self.required(&mut fields, "username");
        let password = self.password(&mut fields);
        let pin = fields
            .take("certificate_sha256")
            .and_then(|tree| self.text(tree, "certificate_sha256"));
        if let Some((at, pin)) = &pin
            && let Err(why) = tls::parse_pin(pin)
        {
            self.fault(*at, why);
        }
        let system = fields
            .take("system")
            .and_then(|tree| self.text(tree, "system"))
            .map(|(_, system)| system);
        self.finish(fields);
        Some(BmcDocument {
            address: address?.1,
            username: username?.1,
            password: password?,
            certificate_sha256: pin.map(|(_, pin)| pin.to_ascii_lowercase()),
            system,
        })
    }

    /// The password from the only source that is given.
    fn password(&mut self, fields: &mut Fields) -> Option<SecretString> {
        let inline = fields.take("password").and_then(|tree| self.text(tree, "password"));
        let file = fields
            .take("password_file")
            .and_then(|tree| self.text(tree, "password_file"));
        let env = fields
            .take("password_env")
            .and_then(|tree| self.text(tree, "password_env"));
        let (at, password) = match (inline, file, env) {
            (Some((at, text)), None, None) => (at, Ok(SecretString::from(text))),
            (None, Some((at, path)), None) => {
                // Relative to the document, not to the working directory.
                let base = self.file.parent().unwrap_or(Path::new(""));
                (at, read_password(Some(&base.join(path))).map_err(|e| e.to_string()))
            }
            (None, None, Some((at, name))) => {
                let value = std::env::var(&name).map(SecretString::from);
                (
                    at,
                    value.map_err(|_| format!("the environment variable {name} is not set")),
                )
            }
            (None, None, None) => {
                self.fault(
                    fields.at,
                    "the password is missing: give password, password_file or password_env",
                );
                return None;
            }
            _ => {
                self.fault(fields.at, "give only one of password, password_file and password_env");
                return None;
            }
        };
        match password {
            Ok(password) if password.expose_secret().is_empty() => {
                self.fault(at, "the password is empty");
                None
            }
            Ok(password) => Some(password),
            Err(why) => {
                self.fault(at, why);
                None
            }
        }
    }

    /// A list of MAC addresses, or one of them.
    fn boot_macs(&mut self, tree: Tree) -> Option<Vec<String>> {
        let trees = match tree.value {
            Value::List(trees) => trees,
            Value::Map(_) => {
                self.fault(tree.at, "`boot_macs` must be a list of MAC addresses");
                return None;
            }
            _ => vec![tree],
        };
        let mut macs: Vec<String> = Vec::with_capacity(trees.len());
        for tree in trees {
            let (at, text) = self.text(tree, "boot_macs")?;
            match names::mac(&text) {
                Some(mac) if macs.contains(&mac) => {}
                Some(mac) => macs.push(mac),
                None => {
                    self.fault(at, format!("`{text}` is not a MAC address like 58:a2:e1:bb:b1:0f"));
                    return None;
                }
            }
        }
        Some(macs)
    }

    fn labels(&mut self, tree: Tree) -> Option<HashMap<String, String>> {
        let fields = self.fields(tree, "labels")?;
        let mut labels = HashMap::new();
        for (key, tree) in fields.pairs {
            if let Some((_, text)) = self.text(tree, &key.name) {
                labels.insert(key.name.into_string(), text);
            }
        }
        Some(labels)
    }

    fn fields(&mut self, tree: Tree, what: &'static str) -> Option<Fields> {
        match tree.value {
            Value::Map(pairs) => Some(Fields {
                at: tree.at,
                what,
                known: Vec::new(),
                pairs: self.given_once(pairs),
            }),
            Value::Broken => None,
            _ => {
                self.fault(tree.at, format!("{what} must be a mapping (`name: value` lines)"));
                None
            }
        }
    }

    /// The pairs of a mapping with the first of each key.
    fn given_once(&mut self, pairs: Vec<(Key, Tree)>) -> Vec<(Key, Tree)> {
        let mut names: HashSet<Box<str>> = HashSet::new();
        let mut first = Vec::with_capacity(pairs.len());
        for (key, tree) in pairs {
            if names.insert(key.name.clone()) {
                first.push((key, tree));
            } else {
                self.fault(key.at, format!("`{}` is given twice", key.name));
            }
        }
        first
    }

    fn text(&mut self, tree: Tree, name: &str) -> Option<(Spot, String)> {
        match tree.value {
            Value::Text(text) => Some((tree.at, text.into_string())),
            Value::Null => Some((tree.at, String::new())),
            Value::List(_) | Value::Map(_) => {
                self.fault(tree.at, format!("`{name}` must be a single value"));
                None
            }
            Value::Broken => None,
        }
    }

    fn required(&mut self, fields: &mut Fields, name: &'static str) -> Option<(Spot, String)> {
        match fields.take(name) {
            Some(tree) => self.text(tree, name),
            None => {
                self.fault(fields.at, format!("`{name}` is missing"));
                None
            }
        }
    }

    /// Reports every field that was not taken as unknown.
    fn finish(&mut self, fields: Fields) {
        for (key, _) in &fields.pairs {
            let known = fields.known.join(", ");
            self.fault(
                key.at,
                format!("`{}` is unknown in {} (known: {known})", key.name, fields.what),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Document>, Vec<String>) {
        let mut faults = Vec::new();
        let documents = Reader {
            file: Path::new("f.yaml"),
            faults: &mut faults,
        }
        .documents(text);
        let documents = documents.into_iter().map(|(_, document)| document).collect();
        faults.sort_by_key(|fault| (fault.line, fault.column));
        (documents, faults.iter().map(Fault::to_string).collect())
    }

    #[test]
    fn a_whole_document() {
        let text = "kind: Node\nid: gpu-001\nbmc:\n  address: https://h/base\n  username: admin\n  password: 0123\n  \
                    system: /redfish/v1/Systems/1\nsku: h100\nlabels: {rack: 12, row: \"\"}\n";
        let (documents, faults) = read(text);
        assert_eq!(faults, [""; 0]);
        let document = &documents[0];
        assert_eq!(
            (document.id.as_str(), document.sku.as_deref()),
            ("gpu-001", Some("h100"))
        );
        assert_eq!(
            document.bmc.password.expose_secret(),
            "0123",
            "scalars stay as they are written"
        );
        assert_eq!(document.labels.as_ref().unwrap()["rack"], "12");
        assert_eq!(document.bmc.certificate_sha256, None);
    }

    #[test]
    fn every_fault_is_reported_with_its_place() {
        let text =
            "kind: Node\nid: GPU\nbmc:\n  adress: https://h\n  username: admin\nspeed: 3\n---\nkind: Rack\n---\n- x\n";
        let (_, faults) = read(text);
        assert_eq!(
            faults,
            [
                "f.yaml:2:5: `GPU` is not a node id: 1 to 63 characters of a-z, 0-9 and '-', a letter or digit first and \
                 last",
                "f.yaml:4:3: `address` is missing",
                "f.yaml:4:3: the password is missing: give password, password_file or password_env",
                "f.yaml:4:3: `adress` is unknown in bmc (known: address, username, password, password_file, \
                 password_env, certificate_sha256, system)",
                "f.yaml:6:1: `speed` is unknown in a document (known: kind, id, bmc, sku, boot_macs, labels)",
                "f.yaml:8:7: `Rack` is not a kind of document; the only kind is Node",
                "f.yaml:10:1: a document must be a mapping (`name: value` lines)",
            ]
        );
    }

    #[test]
    fn values_that_cannot_be_parsed_are_listed_with_the_other_faults() {
        let text = "kind: Node\nid: a\nbmc: {address: https://h, username: u, password: p}\nsku: &x h100\nid: b\n\
                    labels: {rack: *x, rack: 2, row: 1}\n---\nkind: Rack\n---\nid: [\n";
        let (_, faults) = read(text);
        assert_eq!(
            faults,
            [
                "f.yaml:4:9: anchors are not supported",
                "f.yaml:5:1: `id` is given twice",
                "f.yaml:6:16: aliases are not supported",
                "f.yaml:6:20: `rack` is given twice",
                "f.yaml:8:7: `Rack` is not a kind of document; the only kind is Node",
                "f.yaml:10:5: this is not YAML: unclosed bracket '['",
            ]
        );
    }

    #[test]
    fn mac_addresses_are_a_list_or_one() {
        let text = |macs: &str| {
            format!("kind: Node\nid: a\nbmc: {{address: https://h, username: u, password: p}}\nboot_macs: {macs}\n")
        };
        for (given, expected) in [
            ("58-A2-E1-BB-B1-0F", Some("58:a2:e1:bb:b1:0f")),
            (
                "[58:a2:e1:bb:b1:0f, '94:6D:AE:57:0D:D6', 58-a2-e1-bb-b1-0f]",
                Some("58:a2:e1:bb:b1:0f 94:6d:ae:57:0d:d6"),
            ),
            ("[]", Some("")),
            ("", None),
        ] {
            let (documents, faults) = read(&text(given));
            assert_eq!(faults, [""; 0], "{given}");
            let macs = documents[0].boot_macs.as_ref().map(|macs| macs.join(" "));
            assert_eq!(macs.as_deref(), expected, "{given}");
        }
        let (_, faults) = read(&text("[58:a2:e1:bb:b1:0f, eth0]"));
        assert_eq!(
            faults,
            ["f.yaml:4:32: `eth0` is not a MAC address like 58:a2:e1:bb:b1:0f"]
        );
        let (_, faults) = read(&text("\n  a: b"));
        assert_eq!(faults, ["f.yaml:5:3: `boot_macs` must be a list of MAC addresses"]);
    }

    #[test]
    fn passwords_come_from_one_place() {
        let document =
            |password: &str| format!("kind: Node\nid: a\nbmc:\n  address: https://h\n  username: u\n{password}");
        let faults = |password: &str| read(&document(password)).1.join("|");
        assert!(faults("  password: a\n  password_env: B\n").contains("only one of"));
        assert!(faults("  password_env: RACKWRIGHT_TEST_NOT_SET\n").contains("is not set"));
        assert!(faults("  password_file: /nowhere/x\n").contains("/nowhere/x"));
        assert!(faults("  password: ''\n").contains("empty"));
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("secret"), "hunter2\n").unwrap();
        let manifest = temp.path().join("nodes.yaml");
        std::fs::write(&manifest, document("  password_file: secret\n")).unwrap();
        let documents = read_all(&[manifest]).unwrap();
        assert_eq!(documents[0].bmc.password.expose_secret(), "hunter2");
    }

    #[test]
    fn node_ids() {
        for id in ["a", "gpu-001", "0"] {
            assert!(names::is_id(id), "{id}");
        }
        for id in ["", "-a", "a-", "A", "a.b", &"a".repeat(64)] {
            assert!(!names::is_id(id), "{id}");
        }
    }
}
