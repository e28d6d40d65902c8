//! What the first bytes of a file say about it.

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Text, as far as can be seen.
    Text,
    /// A picture that models take, with its media type.
    Image(&'static str),
    /// Anything else, in words.
    Binary(&'static str),
}

/// Beginnings of binary files a model may meet in a workspace. Text forms (SVG, scripts) are text.
const BINARY_MAGIC: &[(&[u8], &str)] = &[
    (b"%PDF-", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive (or a document in one)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "an ELF binary"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\0asm", "WebAssembly"),
    (b"\xff\xfe", "UTF-16 text (convert it with iconv -f UTF-16)"),
    (b"\xfe\xff", "UTF-16 text (convert it with iconv -f UTF-16)"),
];

impl FileKind {
    /// Judges by the first few kilobytes.
    #[must_use]
    pub fn of(head: &[u8]) -> Self {
        if let Some(mime_type) = image_type(head) {
            return Self::Image(mime_type);
        }
        let known = BINARY_MAGIC.iter().find(|(magic, _)| head.starts_with(magic));
        let has_nul = memchr::memchr(0, head).is_some();
        match known {
            // Text may begin with letters that are also somebody's magic.
            Some((magic, _)) if magic.is_ascii() && !has_nul && std::str::from_utf8(head).is_ok() => Self::Text,
            Some((_, name)) => Self::Binary(name),
            None if has_nul => Self::Binary("binary data"),
            None => Self::Text,
        }
    }
}

fn image_type(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if head.starts_with(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        Some("image/gif")
    } else if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        Some("image/webp")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_what_it_is() {
        let check = |head: &[u8], expected| assert_eq!(FileKind::of(head), expected, "{head:?}");
        check(b"fn main() {}\n", FileKind::Text);
        check("größe".as_bytes(), FileKind::Text);
        check(b"latin \xe4", FileKind::Text);
        check(b"", FileKind::Text);
        check(b"BZh is a word", FileKind::Text);
        check(b"\x89PNG\r\n\x1a\n\0\0", FileKind::Image("image/png"));
        check(b"RIFF\x01\x02\x03\x04WEBPVP8", FileKind::Image("image/webp"));
        check(b"RIFF\x01\0\x03\x04WAVE", FileKind::Binary("binary data"));
        check(b"\x7fELF\x02\0", FileKind::Binary("an ELF binary"));
        check(b"%PDF-1.7\n\xe2\xe3", FileKind::Binary("a PDF"));
        check(b"\xff\xfea\0", FileKind::Binary("UTF-16 text (convert it with iconv -f UTF-16)"));
        check(b"a\0b", FileKind::Binary("binary data"));
    }
}
