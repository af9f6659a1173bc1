//! Limits of size: functions of 100 lines and files of 700 at most, and crates of 15,000 lines without tests. Aim for
//! functions of 70 lines and files of 600.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{ImplItemFn, ItemFn, Signature, TraitItemFn};

const MAX_FUNCTION_LINES: usize = 100;
const MAX_FILE_LINES: usize = 700;
/// Most lines of a crate, without tests.
const MAX_CRATE_LINES: usize = 15_000;

/// Functions that may be longer, as `path::name`, with the reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Files that may be longer, with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Crates that may be longer, with the reason.
const LONG_CRATES: &[(&str, &str)] = &[];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("a folder entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names and lengths of all functions, from the line of `fn` to the closing brace.
#[derive(Default)]
struct Functions(Vec<(String, usize)>);

impl Functions {
    fn note(&mut self, signature: &Signature, block: &syn::Block) {
        let lines = block.brace_token.span.close().end().line - signature.fn_token.span.start().line + 1;
        self.0.push((signature.ident.to_string(), lines));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(block) = &function.default {
            self.note(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

fn functions(source: &str) -> syn::Result<Vec<(String, usize)>> {
    let mut functions = Functions::default();
    functions.visit_file(&syn::parse_file(source)?);
    Ok(functions.0)
}

/// The test modules of a file: lines of those inside the file, and paths of the others, without the ending.
#[derive(Default)]
struct TestModules {
    lines: usize,
    files: Vec<PathBuf>,
}

impl TestModules {
    fn of(path: &Path, items: &[syn::Item]) -> Self {
        let folder = path.parent().expect("a file has a folder").to_owned();
        let is_root = ["mod", "lib", "main"]
            .iter()
            .any(|name| path.file_stem().is_some_and(|stem| stem == *name));
        let below = if is_root {
            folder.clone()
        } else {
            path.with_extension("")
        };
        let mut found = Self::default();
        for item in items {
            let syn::Item::Mod(module) = item else { continue };
            if !module.attrs.iter().any(is_test) {
                continue;
            }
            let named = module.attrs.iter().find_map(named_path);
            match (&module.content, named) {
                (Some((brace, _)), _) => {
                    let first = module.attrs[0].pound_token.span.start().line;
                    found.lines += brace.span.close().end().line - first + 1;
                }
                (None, Some(name)) => found.files.push(folder.join(name).with_extension("")),
                (None, None) => found.files.push(below.join(module.ident.to_string())),
            }
        }
        found
    }
}

/// Whether an attribute is `#[cfg(test)]`.
fn is_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Path>()
            .is_ok_and(|path| path.is_ident("test"))
}

/// The file name in `#[path]`.
fn named_path(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    let syn::Expr::Lit(syn::ExprLit {
        lit: syn::Lit::Str(file),
        ..
    }) = &pair.value
    else {
        return None;
    };
    pair.path.is_ident("path").then(|| file.value())
}

/// Lines of the sources of a crate without its test modules.
fn product_lines(sources: &Path) -> usize {
    let (mut paths, mut tests, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    rust_files(sources, &mut paths);
    for path in paths {
        let text = fs::read_to_string(&path).expect("a Rust file");
        let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let found = TestModules::of(&path, &file.items);
        tests.extend(found.files);
        lines.push((path, text.lines().count() - found.lines));
    }
    let is_tested = |path: &Path| {
        tests
            .iter()
            .any(|test| path.starts_with(test) || path.with_extension("") == *test)
    };
    let product = lines.iter().filter(|(path, _)| !is_tested(path));
    product.map(|(_, lines)| lines).sum()
}

/// The excesses without an exception, and the exceptions that are no longer needed.
fn judge(kind: &str, limit: usize, excused: &[(&str, &str)], measured: &[(String, usize)]) -> Vec<String> {
    let excuses: BTreeSet<&str> = excused.iter().map(|(name, _)| *name).collect();
    let long: BTreeSet<&str> = measured
        .iter()
        .filter(|(_, lines)| *lines > limit)
        .map(|(name, _)| name.as_str())
        .collect();
    let too_long = measured
        .iter()
        .filter(|(name, lines)| *lines > limit && !excuses.contains(name.as_str()));
    let mut faults: Vec<String> = too_long
        .map(|(name, lines)| format!("{kind} {name} has {lines} lines, more than {limit}"))
        .collect();
    faults.extend(
        excuses
            .difference(&long)
            .map(|name| format!("{kind} {name} is excused but not too long: remove the excuse")),
    );
    faults
}

#[test]
fn functions_and_files_keep_to_their_budget() {
    let root = root();
    let mut paths = Vec::new();
    rust_files(&root.join("crates"), &mut paths);
    rust_files(&root.join("tests"), &mut paths);
    paths.sort();
    assert!(
        paths.len() > 50,
        "only {} Rust files found below {}",
        paths.len(),
        root.display()
    );

    let mut files = Vec::new();
    let mut all_functions = Vec::new();
    for path in &paths {
        let name = path
            .strip_prefix(&root)
            .expect("a path below the root")
            .display()
            .to_string();
        let source = fs::read_to_string(path).expect("a Rust file");
        let found = functions(&source).unwrap_or_else(|error| panic!("{name}: {error}"));
        all_functions.extend(
            found
                .into_iter()
                .map(|(function, lines)| (format!("{name}::{function}"), lines)),
        );
        files.push((name, source.lines().count()));
    }
    let mut faults = judge("file", MAX_FILE_LINES, LONG_FILES, &files);
    faults.extend(judge("function", MAX_FUNCTION_LINES, LONG_FUNCTIONS, &all_functions));
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn crates_keep_to_their_budget() {
    let mut crates = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let path = entry.expect("a folder entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        crates.push((name, product_lines(&path.join("src"))));
    }
    assert!(crates.iter().any(|(_, lines)| *lines > 5000), "{crates:?}");
    let faults = judge("crate", MAX_CRATE_LINES, LONG_CRATES, &crates);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn test_modules_are_no_lines_of_the_product() {
    let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n#[cfg(test)]\nmod more;\n\
                #[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod named;\nmod product;\n";
    let file = syn::parse_file(text).unwrap();
    let found = TestModules::of(Path::new("src/a.rs"), &file.items);
    assert_eq!(found.lines, 4);
    assert_eq!(found.files, [PathBuf::from("src/a/more"), PathBuf::from("src/a_tests")]);
}

#[test]
fn a_long_function_and_an_unused_exception_are_found() {
    let source = format!(
        "/// Doc.\n#[inline]\nfn long() {{\n{}}}\nimpl S {{ fn short() {{}} }}\n",
        "    f();\n".repeat(99)
    );
    let measured = functions(&source).unwrap();
    assert_eq!(measured, [("long".to_owned(), 101), ("short".to_owned(), 1)]);
    assert_eq!(judge("function", 100, &[], &measured).len(), 1);
    assert_eq!(judge("function", 100, &[("long", "a table")], &measured).len(), 0);
    assert_eq!(judge("function", 101, &[("long", "a table")], &measured).len(), 1);
}
