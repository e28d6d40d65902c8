//! Base URLs, parsed. Who a server is, is decided by its parsed host, never by text somewhere in its URL.

use reqwest::Url;

/// A base URL that can be called: `http` or `https` with a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(Url);

impl BaseUrl {
    /// Parses; `None` when there is no host or another scheme.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text.trim()).ok()?;
        (matches!(url.scheme(), "http" | "https") && url.host_str().is_some()).then_some(Self(url))
    }

    /// The host, lower case.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// Scheme, host and port: equal only for the same server.
    #[must_use]
    pub fn origin(&self) -> (&str, &str, u16) {
        (self.0.scheme(), self.host(), self.0.port_or_known_default().unwrap_or_default())
    }

    /// True for a host below this domain.
    #[must_use]
    pub fn is_under(&self, domain: &str) -> bool {
        self.host().strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    }

    /// True for this machine: proxies are never asked for it.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self.host();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
    }

    /// The last part of the path; empty when there is none.
    #[must_use]
    pub fn last_segment(&self) -> &str {
        self.0.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// The URL without a slash at its end, without query and without credentials in it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut url = self.0.clone();
        url.set_query(None);
        url.set_fragment(None);
        // Both fail only for URLs without a host, which were refused.
        let removed = url.set_username("").and_then(|()| url.set_password(None));
        debug_assert!(removed.is_ok());
        url.as_str().trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_callable_addresses_parse() {
        for text in ["", "api.openai.com", "file:///x", "http://", "ftp://h/x", "localhost:8080"] {
            assert_eq!(BaseUrl::parse(text), None, "{text}");
        }
        let url = BaseUrl::parse(" HTTPS://Api.X.ai:443/v1/ ").unwrap();
        assert_eq!((url.origin(), url.last_segment()), (("https", "api.x.ai", 443), "v1"));
        assert_eq!(url.text(), "https://api.x.ai/v1");
        assert_eq!(BaseUrl::parse("http://u:p@h/v1?key=k").unwrap().text(), "http://h/v1");
    }

    #[test]
    fn loopback_is_recognised_in_every_spelling() {
        for (text, expect) in [
            ("http://127.0.0.1:1/v1", true),
            ("http://[::1]/v1", true),
            ("http://localhost/v1", true),
            ("http://127.0.0.1.evil.test/v1", false),
            ("https://api.openai.com", false),
        ] {
            assert_eq!(BaseUrl::parse(text).unwrap().is_loopback(), expect, "{text}");
        }
    }

    #[test]
    fn a_domain_is_matched_at_a_dot() {
        let under = |text: &str| BaseUrl::parse(text).unwrap().is_under("azure.com");
        assert!(under("https://x.azure.com"));
        assert!(!under("https://xazure.com") && !under("https://azure.com.evil.test"));
    }
}
