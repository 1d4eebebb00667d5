//! Manages the broker with fe2o3-amqp-management as it is: a JSON line for each step, `{"step": …, "got": …}`.
//!
//! `management NAME` makes, reads, changes, lists and removes a queue and a topic whose names begin with NAME.
//! What the library does its own way: CREATE has no name among the request's properties, so it stands in
//! the body; QUERY calls the body's key `attribute_names`, so all attributes come.

use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::types::primitives::{OrderedMap, Value};
use fe2o3_amqp::{Connection, Session};
use fe2o3_amqp_management::error::Error;
use fe2o3_amqp_management::operations::{
    CreateRequest, DeleteRequest, GetAnnotationsRequest, GetAttributesRequest, GetMgmtNodesRequest,
    GetOperationsRequest, GetTypesRequest, QueryRequest, ReadRequest, UpdateRequest,
};
use fe2o3_amqp_management::{MgmtClient, Request, Response};
use serde_json::json;

const NODE: &str = "org.amqp.management";
const QUEUE: &str = "org.sluice.queue";
const TOPIC: &str = "org.sluice.topic";
const NO_LOCALES: Option<&str> = None;

type Attributes = OrderedMap<String, Value>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let usage = "usage: management NAME ROWS-OF-A-PAGE";
    let prefix = std::env::args().nth(1).ok_or(usage)?;
    let page: u32 = std::env::args().nth(2).ok_or(usage)?.parse()?;
    let url = std::env::var("URL")?;
    let mut connection = Connection::builder()
        .container_id(format!("management-{prefix}"))
        .sasl_profile(SaslProfile::Anonymous)
        .open(url.as_str())
        .await?;
    let mut session = Session::begin(&mut connection).await?;
    // The name every program takes that doesn't care.
    let mut client = MgmtClient::attach(&mut session, "mgmt-client-node").await?;
    describe(&mut client).await?;
    change(&mut client, &prefix, page).await?;
    refuse(&mut client, &prefix).await?;
    client.close().await?;
    session.end().await?;
    connection.close().await?;
    Ok(())
}

/// What the node says of itself.
async fn describe(client: &mut MgmtClient) -> Result<(), Failure> {
    let types = client.call(GetTypesRequest::new(None, NODE, NO_LOCALES)).await?.types;
    say("GET-TYPES", json!(types.keys().collect::<Vec<_>>()));
    let attributes = client.call(GetAttributesRequest::new(None, NODE, NO_LOCALES)).await?.body;
    say("GET-ATTRIBUTES", json!(attributes.iter().map(|(name, of)| (name.clone(), of.len())).collect::<Vec<_>>()));
    let operations = client.call(GetOperationsRequest::new(None, NODE, NO_LOCALES)).await?.body;
    let of_queues = operations.get(QUEUE).ok_or("no operations of queues")?;
    say("GET-OPERATIONS", json!(of_queues.keys().collect::<Vec<_>>()));
    let annotations = client.call(GetAnnotationsRequest::new(None, NODE, NO_LOCALES)).await?.body;
    say("GET-ANNOTATIONS", json!(annotations.len() == types.len()));
    let nodes = client.call(GetMgmtNodesRequest::new(NODE, NO_LOCALES)).await?.body;
    say("GET-MGMT-NODES", json!(nodes));
    Ok(())
}

/// The life of some queues.
async fn change(client: &mut MgmtClient, prefix: &str, rows: u32) -> Result<(), Failure> {
    for number in 0..5 {
        let given = attributes(&[
            ("name", Value::String(name(prefix, number))),
            ("max_count", Value::Uint(100 + number)),
            ("flow_stop_count", Value::String("50".into())),
        ]);
        let made = client.call(CreateRequest::new(name(prefix, number), QUEUE, NO_LOCALES, given)).await?;
        say("CREATE", number_of(&made.entity_attributes, "flow_stop_count"));
    }
    let first = name(prefix, 0);
    let read = client.call(ReadRequest::name(first.as_str(), QUEUE, None)).await?;
    say("READ", number_of(&read.entity_attributes, "max_count"));
    let read = client.call(ReadRequest::identity(first.as_str(), QUEUE, None)).await?;
    say("READ identity", number_of(&read.entity_attributes, "max_count"));
    let given = attributes(&[("flow_stop_count", Value::Uint(20)), ("flow_resume_count", Value::Uint(10))]);
    let changed = client.call(UpdateRequest::name(first.as_str(), QUEUE, None, given)).await?;
    say("UPDATE", number_of(&changed.entity_attributes, "flow_stop_count"));
    let mut names = Vec::new();
    loop {
        let wanted: [&str; 0] = [];
        let request = QueryRequest::new(Some(QUEUE.into()), names.len() as u32, rows, wanted, NODE, None);
        let page = client.call(request).await?;
        if page.count == 0 {
            break;
        }
        let at = page.attribute_names.iter().position(|each| each == "name").ok_or("no names")?;
        names.extend(page.results.iter().map(|row| format!("{:?}", row[at])));
    }
    say("QUERY", json!(names.iter().filter(|each| each.contains(prefix)).count()));
    for number in 0..5 {
        client.call(DeleteRequest::name(name(prefix, number), QUEUE, None)).await?;
    }
    say("DELETE", json!(true));
    Ok(())
}

/// What is refused, and with which status.
async fn refuse(client: &mut MgmtClient, prefix: &str) -> Result<(), Failure> {
    let gone = name(prefix, 0);
    say("READ gone", status(client, ReadRequest::name(gone.as_str(), QUEUE, None)).await);
    say("DELETE gone", status(client, DeleteRequest::name(gone.as_str(), TOPIC, None)).await);
    let wrong = attributes(&[("name", Value::String(gone)), ("max_cuont", Value::Uint(5))]);
    say("CREATE wrong", status(client, CreateRequest::new("", QUEUE, NO_LOCALES, wrong)).await);
    Ok(())
}

async fn status<Req, Res>(client: &mut MgmtClient, request: Req) -> serde_json::Value
where
    Req: Request<Response = Res>,
    Res: Response,
    Res::Error: Into<Error>,
    for<'de> Res::Body: fe2o3_amqp::types::messaging::FromBody<'de> + std::fmt::Debug + Send,
{
    match client.call(request).await {
        Ok(_) => json!("done"),
        Err(Error::Status(refusal)) => json!([refusal.code.0.get(), refusal.description.is_some()]),
        Err(other) => json!(other.to_string()),
    }
}

fn attributes(given: &[(&str, Value)]) -> Attributes {
    given.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
}

fn number_of(attributes: &Attributes, name: &str) -> serde_json::Value {
    match attributes.get(name) {
        Some(Value::Long(number)) => json!(number),
        other => json!(format!("{other:?}")),
    }
}

fn name(prefix: &str, number: u32) -> String {
    format!("{prefix}.{number}")
}

fn say(step: &str, got: serde_json::Value) {
    println!("{}", json!({"step": step, "got": got}));
}
