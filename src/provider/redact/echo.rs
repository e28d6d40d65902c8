//! A secret in other clothes: what a server makes of it when it tells it back.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use secrecy::SecretString;

/// The ways in which a server may tell a secret back: in base64, where each of the three places that it can begin at
/// inside a longer text (`user:KEY`) gives other characters, and encoded for a URL. Shorter ones than `at_least` bytes
/// are left out.
pub(super) fn echoes(secret: &str, at_least: usize) -> Vec<SecretString> {
    let mut echoes = Vec::new();
    for before in 0..3 {
        // Characters that also hold bits of what stands before or after are left out.
        let skipped = (before * 8_usize).div_ceil(6);
        let whole = (before + secret.len()) * 8 / 6;
        let text = [vec![0; before], secret.as_bytes().to_vec()].concat();
        for encoded in [STANDARD.encode(&text), URL_SAFE.encode(&text)] {
            echoes.extend(encoded.get(skipped..whole).map(str::to_owned));
        }
    }
    let percent = |encode: fn(u8) -> String| ["%20", "+"].map(|blank| percent_encoded(secret, blank, encode));
    echoes.extend(percent(|byte| format!("%{byte:02X}")));
    echoes.extend(percent(|byte| format!("%{byte:02x}")));
    echoes.sort_unstable();
    echoes.dedup();
    echoes.retain(|echo| echo != secret && echo.len() >= at_least);
    echoes.into_iter().map(SecretString::from).collect()
}

fn percent_encoded(secret: &str, blank: &str, encode: fn(u8) -> String) -> String {
    let mut encoded = String::new();
    for byte in secret.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            b' ' => encoded.push_str(blank),
            _ => encoded.push_str(&encode(byte)),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::redact::Redactor;

    #[test]
    fn a_secret_that_comes_back_written_otherwise_goes() {
        let key = "hunter2/horse+x=";
        let redactor = Redactor::default();
        redactor.learn(&SecretString::from(key));
        for before in ["", "u", "ab", "user:", "user2:"] {
            for after in ["", ":", "x-oauth"] {
                let plain = format!("{before}{key}{after}");
                for encoded in [STANDARD.encode(&plain), URL_SAFE.encode(&plain)] {
                    let said = format!("bad header Basic {encoded}, see the manual");
                    let clean = redactor.clean(&said);
                    assert!(clean.contains("[redacted]") && clean.contains("see the manual"), "{clean}");
                    let left: String = clean.split("[redacted]").collect();
                    assert!(!left.contains("aHVudGVyMi9o"), "{clean}");
                }
            }
        }
        for encoded in ["hunter2%2Fhorse%2Bx%3D", "hunter2%2fhorse%2bx%3d"] {
            assert_eq!(redactor.clean(&format!("at /v1?k={encoded}&alt=sse")), "at /v1?k=[redacted]&alt=sse");
        }
    }
}
