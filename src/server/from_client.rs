//! From the wire to our types: parameters with the path of what is wrong, prompts as message parts.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use turnd_protocol::acp;

use crate::message::Part;
use crate::turn::foreign;

use super::error::Error;

/// The longest text of one embedded file that is taken.
const MAX_RESOURCE_BYTES: usize = 8 << 20;

/// Reads parameters; an error names the field.
pub(super) fn params<T: DeserializeOwned>(raw: &jsonrpsee_types::Params<'_>) -> Result<T, Error> {
    let text = raw.as_str().unwrap_or("{}");
    if !text.trim_start().starts_with('{') && text.trim() != "null" {
        return Err(Error::invalid_params("", "params must be an object"));
    }
    let text = if text.trim() == "null" { "{}" } else { text };
    let text = crate::provider::json::without_lone_escapes(text);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let (path, problem) = place(&error.path().to_string(), &error.inner().to_string());
        Error::invalid_params(&path, problem)
    })
}

/// Where a parameter is wrong, and how. A member that is missing is named in serde's text only; the position that it
/// adds means nothing to whoever did not write the line by hand.
fn place(path: &str, said: &str) -> (String, String) {
    let path = if path == "." { "" } else { path };
    let problem = said.rsplit_once(" at line ").map_or(said, |(problem, _)| problem);
    match problem.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        Some(field) if path.is_empty() => (field.to_owned(), "it is missing".to_owned()),
        Some(field) => (format!("{path}.{field}"), "it is missing".to_owned()),
        None => (path.to_owned(), problem.to_owned()),
    }
}

/// A folder from the client: absolute, there, and a folder. Links in it are resolved.
pub(super) fn folder(field: &str, path: &Path) -> Result<PathBuf, Error> {
    if !path.is_absolute() {
        return Err(Error::invalid_params(field, format!("{} is not an absolute path", path.display())));
    }
    let resolved = std::fs::canonicalize(path)
        .map_err(|error| Error::invalid_params(field, format!("{} cannot be used: {error}", path.display())))?;
    if !resolved.is_dir() {
        return Err(Error::invalid_params(field, format!("{} is not a folder", path.display())));
    }
    Ok(resolved)
}

/// The prompt's blocks as message parts. Nothing a block points at is read here.
pub(super) fn prompt(blocks: Vec<acp::ContentBlock>) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::with_capacity(blocks.len());
    for (index, block) in blocks.into_iter().enumerate() {
        parts.push(part(block).map_err(|problem| Error::invalid_params(&format!("prompt[{index}]"), problem))?);
    }
    let is_blank = |part: &Part| matches!(part, Part::Text { text } if text.trim().is_empty());
    if parts.iter().all(is_blank) {
        return Err(Error::invalid_params("prompt", "the prompt is empty"));
    }
    parts.retain(|part| !is_blank(part));
    Ok(parts)
}

fn part(block: acp::ContentBlock) -> Result<Part, String> {
    match block {
        acp::ContentBlock::Text(text) => Ok(Part::text(without_zeros(text.text))),
        acp::ContentBlock::Image(image) => Ok(Part::Image { mime_type: image.mime_type, data: image.data }),
        acp::ContentBlock::ResourceLink(link) => Ok(Part::Link { name: link.name, uri: link.uri }),
        acp::ContentBlock::Resource(resource) => resource_part(resource.resource),
        acp::ContentBlock::Audio(_) => Err("audio is not supported".into()),
        _ => Err("this kind of content is not supported".into()),
    }
}

/// Providers refuse a whole request for one U+0000 in it.
fn without_zeros(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "") } else { text }
}

fn resource_part(resource: acp::EmbeddedResourceResource) -> Result<Part, String> {
    match resource {
        acp::EmbeddedResourceResource::TextResourceContents(text) if text.text.len() <= MAX_RESOURCE_BYTES => {
            let content = foreign::plain(&without_zeros(text.text)).into_owned();
            Ok(Part::Resource { uri: text.uri, text: content })
        }
        acp::EmbeddedResourceResource::TextResourceContents(_) => {
            Err(format!("an embedded file is longer than {MAX_RESOURCE_BYTES} bytes"))
        }
        acp::EmbeddedResourceResource::BlobResourceContents(blob) => match blob.mime_type {
            Some(mime_type) if mime_type.starts_with("image/") => Ok(Part::Image { mime_type, data: blob.blob }),
            _ => Ok(Part::Link { name: "attached file".into(), uri: blob.uri }),
        },
        _ => Err("this kind of resource is not supported".into()),
    }
}
