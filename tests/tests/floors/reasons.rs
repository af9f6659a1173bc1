//! A reason is a sentence for operators: decisions depend on enums, never on words of a reason. Here the product's code must not
//! search, split or compare a reason.

use syn::visit::{self, Visit};

use super::{is_test, product};

/// The crates that decide about nodes and clusters, and those that show them.
const CRATES: &[&str] = &["lifecycle", "ground", "nodes", "control", "grpc"];
/// The names of variables and fields with a reason.
const NAMES: &[&str] = &["reason", "why", "because"];
/// Methods of a text whose result depends on its words.
const READS: &[&str] = &[
    "contains",
    "ends_with",
    "find",
    "matches",
    "parse",
    "rsplit",
    "rsplit_once",
    "split",
    "split_once",
    "split_whitespace",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
];
/// Methods that give the same text in another type.
const SAME: &[&str] = &["as_deref", "as_ref", "as_str", "clone", "to_string", "trim"];

/// Whether an expression is a reason.
fn is_reason(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Path(path) => path
            .path
            .get_ident()
            .is_some_and(|name| NAMES.iter().any(|n| name == n)),
        syn::Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => NAMES.iter().any(|n| name == n),
            syn::Member::Unnamed(_) => false,
        },
        syn::Expr::MethodCall(call) => SAME.iter().any(|same| call.method == same) && is_reason(&call.receiver),
        syn::Expr::Reference(reference) => is_reason(&reference.expr),
        syn::Expr::Unary(unary) => is_reason(&unary.expr),
        syn::Expr::Paren(paren) => is_reason(&paren.expr),
        _ => false,
    }
}

/// Whether a literal is a text with words. A comparison with the empty text asks whether there is a reason.
fn has_words(literal: &syn::Lit) -> bool {
    matches!(literal, syn::Lit::Str(text) if !text.value().is_empty())
}

#[derive(Default)]
struct Readers {
    /// Lines in which a reason is read.
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for Readers {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if READS.iter().any(|read| call.method == read) && is_reason(&call.receiver) {
            self.lines.push(call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let is_literal = |side: &syn::Expr| matches!(side, syn::Expr::Lit(lit) if has_words(&lit.lit));
        let (left, right) = (&*binary.left, &*binary.right);
        let compares = match &binary.op {
            syn::BinOp::Eq(operator) => Some(operator.spans[0]),
            syn::BinOp::Ne(operator) => Some(operator.spans[0]),
            _ => None,
        };
        if let Some(span) = compares
            && (is_reason(left) && is_literal(right) || is_literal(left) && is_reason(right))
        {
            self.lines.push(span.start().line);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_match(&mut self, of: &'ast syn::ExprMatch) {
        let has_words = |arm: &syn::Arm| matches!(&arm.pat, syn::Pat::Lit(pattern) if has_words(&pattern.lit));
        if is_reason(&of.expr) && of.arms.iter().any(has_words) {
            self.lines.push(of.match_token.span.start().line);
        }
        visit::visit_expr_match(self, of);
    }
}

fn readers(file: &syn::File) -> Vec<usize> {
    let mut readers = Readers::default();
    readers.visit_file(file);
    readers.lines
}

#[test]
fn no_decision_depends_on_the_words_of_a_reason() {
    let mut found = Vec::new();
    for name in CRATES {
        let files = product(name);
        assert!(files.len() > 5, "{name}");
        for one in files {
            let lines = readers(&one.syntax).into_iter();
            found.extend(lines.map(|line| format!("{}:{line}", one.path.display())));
        }
    }
    assert!(found.is_empty(), "a reason is read here:\n{}", found.join("\n"));
}

#[test]
fn a_reader_of_a_reason_is_found() {
    let readers = |body: &str| readers(&syn::parse_file(&format!("fn f() {{ {body} }}")).expect("Rust")).len();
    for body in [
        "record.reason.contains(\"disk\");",
        "if reason.as_str() == \"failed\" {}",
        "if \"failed\" != why {}",
        "match why.as_str() { \"failed\" => {} _ => {} }",
        "let (a, b) = self.reason.trim().split_once(\": \").unwrap();",
    ] {
        assert_eq!(readers(body), 1, "{body}");
    }
    for body in [
        "reason.is_empty();",
        "if reason == \"\" {}",
        "match reason.as_str() { \"\" => {} _ => {} }",
        "names.contains(reason);",
        "#[cfg(test)] mod tests { fn g() { reason.contains(\"disk\"); } }",
    ] {
        assert_eq!(readers(body), 0, "{body}");
    }
}
