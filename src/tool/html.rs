//! HTML to the Markdown a model reads: headings, lists, links, code and tables, and none of the page's machinery.
//!
//! One pass without a tree, for pages as they are: unclosed tags, wrong nesting and cut ends are all taken.
//! Scripts are not run, so a page that is built by one comes out empty.

use reqwest::Url;

/// Elements whose text is never for a reader.
const SKIPPED: &[&str] =
    &["script", "style", "noscript", "template", "svg", "nav", "iframe", "head", "title", "select", "button"];

/// Elements that begin a new paragraph.
const BLOCKS: &[&str] = &[
    "p",
    "div",
    "section",
    "article",
    "main",
    "header",
    "footer",
    "aside",
    "table",
    "ul",
    "ol",
    "dl",
    "blockquote",
    "figure",
    "form",
    "fieldset",
    "details",
    "hr",
];

/// Characters of the longest tag that is understood.
const MAX_TAG_BYTES: usize = 16 << 10;

/// The page as Markdown. Links are made absolute with `base`.
#[must_use]
pub fn to_markdown(html: &str, base: &Url) -> String {
    let mut writer = Writer::new(base);
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let (text, from_tag) = rest.split_at(at);
        writer.text(text);
        rest = writer.tag(from_tag);
    }
    writer.text(rest);
    writer.finish()
}

/// The content of the `title` element.
#[must_use]
pub fn title(html: &str) -> Option<String> {
    let head = html.get(..html.len().min(MAX_TAG_BYTES * 8)).unwrap_or(html);
    let lower = head.to_ascii_lowercase();
    let open = lower.find("<title")?;
    let start = open + lower.get(open..)?.find('>')? + 1;
    let end = start + lower.get(start..)?.find("</title")?;
    let title = super::output::one_line(&decode(head.get(start..end)?), 200);
    Some(title).filter(|title| !title.is_empty())
}

struct Writer<'a> {
    base: &'a Url,
    out: String,
    /// The element that is being skipped, and how often it is open inside itself.
    skipped: Option<(String, usize)>,
    pre_depth: usize,
    /// Open lists: the next number of an ordered one.
    lists: Vec<Option<u32>>,
    link: Option<(String, usize)>,
    cells: usize,
}

impl<'a> Writer<'a> {
    fn new(base: &'a Url) -> Self {
        Self { base, out: String::new(), skipped: None, pre_depth: 0, lists: Vec::new(), link: None, cells: 0 }
    }

    fn text(&mut self, raw: &str) {
        if self.skipped.is_some() || raw.is_empty() {
            return;
        }
        let text = decode(raw);
        if self.pre_depth > 0 {
            self.out.push_str(&text);
            return;
        }
        let starts_with_space = text.starts_with(char::is_whitespace);
        let words = text.split_whitespace();
        for (index, word) in words.enumerate() {
            if (index > 0 || starts_with_space) && !self.is_at_gap() {
                self.out.push(' ');
            }
            self.out.push_str(word);
        }
        if text.ends_with(char::is_whitespace) && !self.is_at_gap() {
            self.out.push(' ');
        }
    }

    fn is_at_gap(&self) -> bool {
        self.out.is_empty() || self.out.ends_with([' ', '\n'])
    }

    /// Makes the output end with at least so many line ends.
    fn break_lines(&mut self, count: usize) {
        if self.pre_depth == 0 {
            self.out.truncate(self.out.trim_end_matches(' ').len());
        }
        if self.out.is_empty() {
            return;
        }
        let present = self.out.bytes().rev().take(count).take_while(|byte| *byte == b'\n').count();
        for _ in present..count {
            self.out.push('\n');
        }
    }

    /// Takes the tag (or comment) the text begins with and gives what follows it.
    fn tag<'t>(&mut self, text: &'t str) -> &'t str {
        if text.starts_with("<!--") {
            return text.find("-->").and_then(|end| text.get(end + 3..)).unwrap_or("");
        }
        let inside = text.get(1..).unwrap_or_default();
        if !inside.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '/' | '!' | '?')) {
            self.text("<");
            return inside;
        }
        let Some(end) = tag_end(inside) else { return "" };
        let tag = inside.get(..end).unwrap_or_default();
        let rest = inside.get(end + 1..).unwrap_or_default();
        let is_close = tag.starts_with('/');
        let bare = tag.trim_start_matches('/');
        let name_end = bare.find(|next: char| next.is_ascii_whitespace() || next == '/').unwrap_or(bare.len());
        let (name, attributes) = bare.split_at(name_end);
        let name = name.to_ascii_lowercase();
        if self.skip(&name, is_close, tag.ends_with('/')) {
            // The text of scripts and styles may hold anything, tags too.
            return if matches!(name.as_str(), "script" | "style") && !is_close {
                after_close(rest, &name)
            } else {
                rest
            };
        }
        if is_close {
            self.close(&name);
        } else {
            self.open(&name, attributes);
        }
        rest
    }

    /// True when the tag belongs to what is skipped.
    fn skip(&mut self, name: &str, is_close: bool, is_empty: bool) -> bool {
        match &mut self.skipped {
            Some((skipped, depth)) => {
                if skipped == name && !is_empty {
                    *depth = if is_close { depth.saturating_sub(1) } else { *depth + 1 };
                }
                // A body also ends a head that was never closed.
                if *depth == 0 || (name == "body" && skipped == "head") {
                    self.skipped = None;
                }
                true
            }
            None if SKIPPED.contains(&name) => {
                let holds_itself = matches!(name, "script" | "style");
                if !is_close && !is_empty && !holds_itself {
                    self.skipped = Some((name.into(), 1));
                }
                true
            }
            None => false,
        }
    }

    fn open(&mut self, name: &str, attributes: &str) {
        match name {
            "br" if !self.out.ends_with("\n\n") => self.out.push('\n'),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.break_lines(2);
                let level = name.bytes().last().map_or(1, |digit| usize::from(digit.saturating_sub(b'0')));
                self.out.push_str(&"#".repeat(level));
                self.out.push(' ');
            }
            "pre" => {
                self.break_lines(2);
                self.out.push_str("```\n");
                self.pre_depth += 1;
            }
            "code" if self.pre_depth == 0 => self.out.push('`'),
            "ul" | "ol" if !self.lists.is_empty() => self.lists.push((name == "ol").then_some(1)),
            "ul" | "ol" => {
                self.break_lines(2);
                self.lists.push((name == "ol").then_some(1));
            }
            "li" => self.list_item(),
            "dt" | "dd" => self.break_lines(1),
            "tr" => {
                self.break_lines(1);
                self.cells = 0;
            }
            "td" | "th" => {
                if self.cells > 0 {
                    self.out.push_str(" | ");
                }
                self.cells += 1;
            }
            "a" => {
                let target = attribute(attributes, "href").and_then(|href| self.base.join(href.trim()).ok());
                let target = target.filter(|target| matches!(target.scheme(), "http" | "https"));
                self.link = target.map(|target| (target.to_string(), self.out.len()));
            }
            "img" => {
                if let Some(alternative) = attribute(attributes, "alt").filter(|text| !text.trim().is_empty()) {
                    self.text(&format!("[image: {}]", alternative.trim()));
                }
            }
            _ if BLOCKS.contains(&name) => self.break_lines(2),
            _ => {}
        }
    }

    fn list_item(&mut self) {
        self.break_lines(1);
        let depth = self.lists.len().saturating_sub(1).min(8);
        self.out.push_str(&"  ".repeat(depth));
        match self.lists.last_mut() {
            Some(Some(number)) => {
                self.out.push_str(&format!("{number}. "));
                *number = number.saturating_add(1);
            }
            _ => self.out.push_str("- "),
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.break_lines(2),
            "pre" if self.pre_depth > 0 => {
                self.break_lines(1);
                self.pre_depth -= 1;
                self.out.push_str("```\n\n");
            }
            "code" if self.pre_depth == 0 => self.out.push('`'),
            "ul" | "ol" => {
                self.lists.pop();
                self.break_lines(if self.lists.is_empty() { 2 } else { 1 });
            }
            "a" => self.close_link(),
            _ if BLOCKS.contains(&name) => self.break_lines(2),
            _ => {}
        }
    }

    fn close_link(&mut self) {
        let Some((target, start)) = self.link.take() else { return };
        let label = self.out.get(start..).unwrap_or_default().trim().to_owned();
        if label.is_empty() || label.contains('\n') || self.pre_depth > 0 {
            return;
        }
        let has_gap = self.out.get(start..).is_some_and(|text| text.starts_with(' '));
        self.out.truncate(start);
        if has_gap {
            self.out.push(' ');
        }
        self.out.push_str(&format!("[{label}]({target})"));
    }

    fn finish(self) -> String {
        let mut text = String::with_capacity(self.out.len());
        let mut n_empty = 0;
        for line in self.out.lines() {
            n_empty = if line.trim().is_empty() { n_empty + 1 } else { 0 };
            if n_empty < 2 {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        text.trim().into()
    }
}

/// Where the tag ends: the first `>` outside quotes.
fn tag_end(inside: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in inside.bytes().enumerate().take(MAX_TAG_BYTES) {
        match (quote, byte) {
            (None, b'>') => return Some(at),
            (None, b'"' | b'\'') if inside.as_bytes().get(at.wrapping_sub(1)) == Some(&b'=') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    // A quote that never closes: the first `>` will do.
    inside.find('>')
}

/// What follows the closing tag of an element whose content is no HTML.
fn after_close<'t>(rest: &'t str, name: &str) -> &'t str {
    let mut from = rest;
    while let Some(at) = from.find("</") {
        let after = from.get(at + 2..).unwrap_or_default();
        if after.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)) {
            return after.find('>').and_then(|end| after.get(end + 1..)).unwrap_or("");
        }
        from = after;
    }
    ""
}

fn attribute(attributes: &str, name: &str) -> Option<String> {
    let lower = attributes.to_ascii_lowercase();
    let mut from = 0;
    loop {
        let at = from + lower.get(from..)?.find(name)?;
        from = at + name.len();
        let is_start = attributes.get(..at).is_none_or(|before| before.ends_with(|c: char| c.is_ascii_whitespace()));
        let Some(value) = attributes.get(from..)?.trim_start().strip_prefix('=').filter(|_| is_start) else { continue };
        let value = value.trim_start();
        let value = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value.get(1..)?.split(quote).next()?,
            _ => value.split(|c: char| c.is_ascii_whitespace()).next()?,
        };
        return Some(decode(value));
    }
}

/// The entities pages use; others stay as they are.
const ENTITIES: &[(&str, &str)] = &[
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("mdash", "—"),
    ("ndash", "–"),
    ("hellip", "…"),
    ("copy", "©"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("bull", "•"),
    ("middot", "·"),
    ("times", "×"),
    ("rarr", "→"),
    ("larr", "←"),
    ("para", "¶"),
    ("sect", "§"),
];

/// Bytes of the longest entity that is understood, `&#x10FFFF;`.
const MAX_ENTITY_BYTES: usize = 10;

fn decode(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, from_entity) = rest.split_at(at);
        decoded.push_str(before);
        let known = from_entity.bytes().take(MAX_ENTITY_BYTES).position(|byte| byte == b';').and_then(|end| {
            let character = entity(from_entity.get(1..end)?)?;
            Some((character, from_entity.get(end + 1..)?))
        });
        match known {
            Some((character, after)) => {
                decoded.push_str(&character);
                rest = after;
            }
            None => {
                decoded.push('&');
                rest = from_entity.get(1..).unwrap_or_default();
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

fn entity(name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code)
            .filter(|character| !character.is_control() || *character == '\n')
            .map(String::from);
    }
    ENTITIES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(html: &str, expected: &str) {
        assert_eq!(to_markdown(html, &Url::parse("https://example.com/docs/a").unwrap()), expected, "{html}");
    }

    #[test]
    fn a_page_becomes_markdown() {
        check("<h1>Title</h1><p>One  two\nthree.<p>Four", "# Title\n\nOne two three.\n\nFour");
        check("<ul><li>a<li>b<ul><li>c</ul></ul>after", "- a\n- b\n  - c\n\nafter");
        check("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b");
        check("see <a href='../b?x=1&amp;y'>the\n docs</a>.", "see [the docs](https://example.com/b?x=1&y).");
        check("<a href=javascript:alert(1)>x</a> <a href=\"#s\">s</a>", "x [s](https://example.com/docs/a#s)");
        check("<pre><code>fn a() {\n    b &lt; c\n}</code></pre>", "```\nfn a() {\n    b < c\n}\n```");
        check("use <code>x</code> now", "use `x` now");
        check("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a | b\n1 | 2");
        check("<img src=x alt='A cat'>", "[image: A cat]");
        check("a<br>b", "a\nb");
        check("<b>bold</b> and <i>not</i>", "bold and not");
    }

    #[test]
    fn what_is_not_for_a_reader_is_left_out() {
        check("<html><head><title>t</title><style>p{}</style></head><body>x</body>", "x");
        check("a<script>if (a < b) document.write('<p>no</p>')</script>b", "ab");
        check("a<!-- <p>no</p> -->b", "ab");
        check("<nav><nav>no</nav>no</nav>yes", "yes");
        check("<head><meta x><body>yes", "yes");
        check("<title>no</title>yes", "yes");
        check("a<svg><path d='>'/></svg>b", "ab");
    }

    #[test]
    fn broken_html_is_taken_as_it_is() {
        check("1 < 2 & 3 &unknown; &#65;&#x42;&#0;", "1 < 2 & 3 &unknown; AB&#0;");
        check("<a href=\"x>unclosed", "unclosed");
        check("<p title='a > b'>text", "text");
        check("</p></ul></pre></a>text", "text");
        check("<script>never closed", "");
        check("<", "<");
        check("grüße <ü>", "grüße <ü>");
    }

    #[test]
    fn a_page_made_to_be_slow_is_not() {
        let started = std::time::Instant::now();
        for piece in
            ["<br><p>", "<", "<a href=\"", "<a b='>", "<ul><li>", "</", "<!--", "&#", "<pre>\n</pre><p>", "<script>"]
        {
            let page = piece.repeat((1 << 20) / piece.len());
            assert!(to_markdown(&page, &Url::parse("https://example.com").unwrap()).len() < 4 << 20, "{piece}");
        }
        // A quadratic step would take minutes.
        assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    }

    #[test]
    fn the_title_is_found() {
        assert_eq!(title("<HEAD><TITLE lang=en>A &amp;\n B</TITLE>").as_deref(), Some("A & B"));
        assert_eq!(title("<title>never closed"), None);
        assert_eq!(title("nothing"), None);
    }
}
