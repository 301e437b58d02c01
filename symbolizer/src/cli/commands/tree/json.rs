//! `heapprof tree --json`: the tree in JSON, described in `docs/json.md`.

use std::io::{self, Write};

use heapprof_symbolizer::export::json::{Errors, Values};
use heapprof_symbolizer::{Amount, Json, Measure, Node, Profile, RecordingConditions, Tree};
use serde::{Serialize, Serializer};

use crate::cli::output::document::Head;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    totals: Values,
    #[serde(flatten)]
    past: Option<Past>,
    #[serde(flatten)]
    circumstances: RecordingConditions<'a>,
    tree: JsonNode<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    continued: Vec<JsonNode<'a>>,
}

/// The numbers that only the past tells, if they are asked for.
#[derive(Serialize)]
struct Past {
    metric: &'static str,
    unit: &'static str,
}

/// That of a node.
#[derive(Serialize)]
struct PastAmount {
    #[serde(rename = "self")]
    own: f64,
    self_error: f64,
    total: f64,
    total_error: f64,
}

impl PastAmount {
    fn of(own: &Amount, total: &Amount) -> PastAmount {
        PastAmount {
            own: own.value,
            self_error: own.error(),
            total: total.value,
            total_error: total.error(),
        }
    }
}

/// Most levels of a tree that are nested, see docs/json.md: jq 1.6 has room for 256 brackets and
/// keys, and each takes three.
const NESTED: usize = 80;

/// A node with what is below it, down to the next level at which the document begins anew.
struct JsonNode<'a> {
    tree: &'a Tree,
    node: &'a Node,
    /// True if it has an amount of the past.
    has_amount: bool,
    /// True if its children stand here, though its level is one at which the document begins anew.
    is_top: bool,
    /// The nodes from which the document begins anew, as they lie in the tree.
    continued: &'a [&'a Node],
}

#[derive(Serialize)]
struct JsonFields<'a> {
    name: &'a str,
    #[serde(rename = "self")]
    own: Values,
    total: Values,
    errors: Errors,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<PastAmount>,
    children: Vec<JsonNode<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continued: Option<usize>,
}

impl Serialize for JsonNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let JsonNode { tree, node, .. } = *self;
        let continued = match self.is_top {
            true => None,
            // Nodes lie in one list, and these are in its order.
            false => (self.continued)
                .binary_search_by_key(&std::ptr::from_ref(node), |at| std::ptr::from_ref(*at))
                .ok(),
        };
        let children = match continued {
            Some(_) => &[],
            None => tree.children(node),
        };
        let child = |node| JsonNode {
            node,
            is_top: false,
            ..*self
        };
        let fields = JsonFields {
            name: tree.name(node),
            own: node.own.into(),
            total: node.total.into(),
            errors: Errors::of(&node.totals),
            amount: (self.has_amount).then(|| PastAmount::of(&node.own_amount, &node.amount)),
            children: children.iter().map(child).collect(),
            continued,
        };
        fields.serialize(serializer)
    }
}

pub(super) fn write(
    profile: &Profile,
    tree: &Tree,
    measure: Measure,
    out: &mut impl Write,
) -> io::Result<()> {
    // The four metrics are in each node already.
    let past = measure.needs_pasts().then_some(measure);
    let begins_anew = |node: &&Node| {
        node.depth() > 0 && node.depth().is_multiple_of(NESTED) && !tree.children(node).is_empty()
    };
    let continued: Vec<&Node> = tree.nodes().iter().filter(begins_anew).collect();
    let top = |node| JsonNode {
        tree,
        node,
        has_amount: past.is_some(),
        is_top: true,
        continued: &continued,
    };
    let document = Document {
        head: Head::of(profile),
        totals: profile.numbers().into(),
        past: past.map(|measure| Past {
            metric: measure.name(),
            unit: measure.unit(),
        }),
        circumstances: RecordingConditions::of(profile),
        tree: top(tree.root()),
        continued: continued.iter().map(|node| top(node)).collect(),
    };
    Json::Compact.write(&document, out)
}
