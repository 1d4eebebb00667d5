//! The notation of types.json and the library's values. No connection here.

use fe2o3_amqp::types::primitives::{
    Array, Binary, Dec128, Dec32, Dec64, OrderedMap, Symbol, Timestamp, Uuid, Value,
};
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;
use serde_json::{json, Value as Json};

/// The library's value of a noted one, or the reason why it has none.
pub fn value_of(noted: &Json) -> Result<Value, String> {
    let content = &noted["value"];
    let kind = noted["type"].as_str().ok_or("no type")?;
    match kind {
        "null" => Ok(Value::Null),
        "boolean" => content
            .as_bool()
            .map(Value::Bool)
            .ok_or("no boolean".into()),
        "list" => values_of(content).map(Value::List),
        "map" => map_of(content),
        "array" => array_of(content),
        "described" => described_of(content),
        _ => scalar_of(kind, content.as_str().ok_or("no text")?),
    }
}

fn items(content: &Json) -> Result<&Vec<Json>, String> {
    content.as_array().ok_or("no list".to_string())
}

fn values_of(content: &Json) -> Result<Vec<Value>, String> {
    items(content)?.iter().map(value_of).collect()
}

fn map_of(content: &Json) -> Result<Value, String> {
    let mut map = OrderedMap::new();
    for pair in items(content)? {
        map.insert(value_of(&pair[0])?, value_of(&pair[1])?);
    }
    Ok(Value::Map(map))
}

fn array_of(content: &Json) -> Result<Value, String> {
    let kind = content["of"].as_str().ok_or("no type of an array")?;
    let values: Result<Vec<Value>, String> = items(&content["values"])?
        .iter()
        .map(|each| scalar_of(kind, each.as_str().ok_or("no text")?))
        .collect();
    values.map(|values| Value::Array(Array(values)))
}

fn described_of(content: &Json) -> Result<Value, String> {
    let descriptor = match value_of(&content["descriptor"])? {
        Value::Symbol(name) => Descriptor::Name(name),
        Value::Ulong(code) => Descriptor::Code(code),
        other => return Err(format!("the library has no descriptor {other:?}")),
    };
    let value = value_of(&content["value"])?;
    Ok(Value::Described(Box::new(Described { descriptor, value })))
}

fn scalar_of(kind: &str, text: &str) -> Result<Value, String> {
    Ok(match kind {
        "ubyte" => Value::Ubyte(number(text)?),
        "ushort" => Value::Ushort(number(text)?),
        "uint" => Value::Uint(number(text)?),
        "ulong" => Value::Ulong(number(text)?),
        "byte" => Value::Byte(number(text)?),
        "short" => Value::Short(number(text)?),
        "int" => Value::Int(number(text)?),
        "long" => Value::Long(number(text)?),
        "float" => Value::from(f32::from_be_bytes(octets(text)?)),
        "double" => Value::from(f64::from_be_bytes(octets(text)?)),
        "decimal32" => Value::Decimal32(Dec32::from(octets(text)?)),
        "decimal64" => Value::Decimal64(Dec64::from(octets(text)?)),
        "decimal128" => Value::Decimal128(Dec128::from(octets(text)?)),
        "char" => Value::Char(char::from_u32(number(text)?).ok_or("no code point")?),
        "timestamp" => Value::Timestamp(Timestamp::from_milliseconds(number(text)?)),
        "uuid" => Value::Uuid(Uuid::from(octets::<16>(&text.replace('-', ""))?)),
        "binary" => Value::Binary(Binary::from(unhex(text)?)),
        "string" => Value::String(text.to_string()),
        "symbol" => Value::Symbol(Symbol::from(text)),
        _ => return Err(format!("unknown type {kind}")),
    })
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("no number: {text}"))
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2).unwrap_or("?"), 16))
        .collect::<Result<Vec<u8>, _>>()
        .map_err(|error| error.to_string())
}

fn octets<const N: usize>(text: &str) -> Result<[u8; N], String> {
    unhex(text)?
        .try_into()
        .map_err(|_| format!("not {N} octets: {text}"))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Notes what the library decoded.
pub fn noted(value: &Value) -> Result<Json, String> {
    let (kind, content) = match value {
        Value::Null => ("null", Json::Null),
        Value::Bool(value) => ("boolean", json!(value)),
        Value::List(values) => ("list", noted_all(values)?),
        Value::Map(map) => {
            let mut pairs = Vec::new();
            for (key, value) in map.iter() {
                pairs.push(json!([noted(key)?, noted(value)?]));
            }
            ("map", Json::Array(pairs))
        }
        Value::Array(Array(values)) => ("array", noted_array(values)?),
        Value::Described(described) => {
            let descriptor = match &described.descriptor {
                Descriptor::Name(name) => json!({"type": "symbol", "value": name.0}),
                Descriptor::Code(code) => json!({"type": "ulong", "value": code.to_string()}),
            };
            let value = noted(&described.value)?;
            (
                "described",
                json!({"descriptor": descriptor, "value": value}),
            )
        }
        scalar => {
            let (kind, text) = scalar_noted(scalar)?;
            (kind, Json::String(text))
        }
    };
    Ok(json!({"type": kind, "value": content}))
}

fn noted_all(values: &[Value]) -> Result<Json, String> {
    let items: Result<Vec<Json>, String> = values.iter().map(noted).collect();
    items.map(Json::Array)
}

/// An empty array's type isn't told by the library.
fn noted_array(values: &[Value]) -> Result<Json, String> {
    let mut of = None;
    let mut texts = Vec::new();
    for value in values {
        let (kind, text) = scalar_noted(value)?;
        of = Some(kind);
        texts.push(text);
    }
    let of = of.ok_or("the library doesn't tell an empty array's type")?;
    Ok(json!({"of": of, "values": texts}))
}

fn scalar_noted(value: &Value) -> Result<(&'static str, String), String> {
    Ok(match value {
        Value::Ubyte(value) => ("ubyte", value.to_string()),
        Value::Ushort(value) => ("ushort", value.to_string()),
        Value::Uint(value) => ("uint", value.to_string()),
        Value::Ulong(value) => ("ulong", value.to_string()),
        Value::Byte(value) => ("byte", value.to_string()),
        Value::Short(value) => ("short", value.to_string()),
        Value::Int(value) => ("int", value.to_string()),
        Value::Long(value) => ("long", value.to_string()),
        Value::Float(value) => ("float", hex(&value.0.to_be_bytes())),
        Value::Double(value) => ("double", hex(&value.0.to_be_bytes())),
        Value::Decimal32(value) => ("decimal32", hex(value.as_inner())),
        Value::Decimal64(value) => ("decimal64", hex(value.as_inner())),
        Value::Decimal128(value) => ("decimal128", hex(value.as_inner())),
        Value::Char(value) => ("char", (*value as u32).to_string()),
        Value::Timestamp(value) => ("timestamp", value.milliseconds().to_string()),
        Value::Uuid(value) => ("uuid", hyphened(&hex(value.as_inner()))),
        Value::Binary(value) => ("binary", hex(value)),
        Value::String(value) => ("string", value.clone()),
        Value::Symbol(value) => ("symbol", value.0.clone()),
        other => return Err(format!("no notation of the library's {other:?}")),
    })
}

fn hyphened(hex: &str) -> String {
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}
