//! The functions that rules may call, and their result types as far as those are certain.

use kube_cel::cel::common::ast::{Expr, SelectExpr};

use super::types::{Ty, Typed};

const BOOL: &[&str] = &[
    "bool",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "hasValue",
    "isSorted",
    "isURL",
    "isIP",
    "isCIDR",
    "isQuantity",
    "isSemver",
    "isInteger",
    "isGreaterThan",
    "isLessThan",
    "containsIP",
    "containsCIDR",
    "isLoopback",
    "isUnspecified",
    "isGlobalUnicast",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "ip.isCanonical",
    "math.isFinite",
    "math.isInf",
    "math.isNaN",
    "all",
    "exists",
    "existsOne",
    "exists_one",
];
const INT: &[&str] = &[
    "int",
    "size",
    "indexOf",
    "lastIndexOf",
    "compareTo",
    "family",
    "prefixLength",
    "major",
    "minor",
    "patch",
    "asInteger",
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
];
const TEXT: &[&str] = &[
    "string",
    "lowerAscii",
    "upperAscii",
    "trim",
    "replace",
    "substring",
    "charAt",
    "join",
    "format",
    "find",
    "strings.quote",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
    "base64.encode",
    "jsonpatch.escapeKey",
];
const OTHER: &[&str] = &[
    "dyn",
    "type",
    "uint",
    "double",
    "bytes",
    "duration",
    "timestamp",
    "min",
    "max",
    "sum",
    "sort",
    "sortBy",
    "reverse",
    "distinct",
    "flatten",
    "first",
    "last",
    "slice",
    "lists.range",
    "split",
    "findAll",
    "url",
    "getQuery",
    "ip",
    "cidr",
    "masked",
    "quantity",
    "add",
    "sub",
    "sign",
    "asApproximateFloat",
    "semver",
    "value",
    "or",
    "orValue",
    "optMap",
    "optFlatMap",
    "optional.of",
    "optional.none",
    "optional.ofNonZeroValue",
    "base64.decode",
    "math.abs",
    "math.bitAnd",
    "math.bitNot",
    "math.bitOr",
    "math.bitShiftLeft",
    "math.bitShiftRight",
    "math.bitXor",
    "math.ceil",
    "math.floor",
    "math.greatest",
    "math.least",
    "math.round",
    "math.sign",
    "math.sqrt",
    "math.trunc",
    "transformList",
    "transformMap",
    "transformMapEntry",
    "validate",
    "format.named",
    "format.byte",
    "format.date",
    "format.datetime",
    "format.labelValue",
    "format.qualifiedName",
    "format.dns1123Label",
    "format.dns1123LabelPrefix",
    "format.dns1123Subdomain",
    "format.dns1123SubdomainPrefix",
    "format.dns1035Label",
    "format.dns1035LabelPrefix",
    "format.uri",
    "format.uuid",
    "cel.bind",
];

/// The name of a type that is written like a field: `google.protobuf.Duration`.
pub(super) fn type_name(select: &SelectExpr) -> Option<&'static str> {
    let Expr::Select(inner) = &select.operand.expr else { return None };
    let Expr::Ident(root) = &inner.operand.expr else { return None };
    match (root.as_str(), inner.field.as_str(), select.field.as_str()) {
        ("google", "protobuf", "Duration") => Some("google.protobuf.Duration"),
        ("google", "protobuf", "Timestamp") => Some("google.protobuf.Timestamp"),
        _ => None,
    }
}

/// The name of the function `space.name`, if there is one.
pub(super) fn qualified(space: &str, name: &str) -> Option<&'static str> {
    [BOOL, INT, TEXT, OTHER].into_iter().flatten().copied().find(|known| {
        known.strip_prefix(space).and_then(|rest| rest.strip_prefix('.')) == Some(name)
    })
}

/// The result type of a function; `None` if there is no such function.
pub(super) fn result<'a>(name: &str, size: u64) -> Option<Typed<'a>> {
    let ty = if BOOL.contains(&name) {
        Ty::Bool
    } else if INT.contains(&name) {
        Ty::Int
    } else if TEXT.contains(&name) {
        Ty::Text
    } else if name == "duration" {
        Ty::Duration
    } else if name == "timestamp" {
        Ty::Timestamp
    } else if OTHER.contains(&name) {
        Ty::Dyn
    } else {
        return None;
    };
    Some(Typed::new(ty, size))
}
