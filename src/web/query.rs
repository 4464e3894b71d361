//! The part of an address behind the question mark, and the fields of a form.

/// The pairs of a query, or of the fields of a form.
pub fn pairs(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (unescaped(key), unescaped(value))).collect()
}

/// A text as part of a query.
pub fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |rest: &std::str::Bytes<'_>| {
            let digits: Vec<u8> = rest.clone().take(2).collect();
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok().filter(|_| digits.len() == 2)
        };
        match (byte, hex(&rest)) {
            (b'%', Some(value)) => {
                bytes.push(value);
                let _ = rest.nth(1);
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back() {
        for text in ["", "a b", "ä/1%&=+", "%zz", "100%"] {
            let query = format!("x={}", escaped(text));
            assert_eq!(pairs(&query), [("x".to_owned(), text.to_owned())], "{query}");
        }
        assert_eq!(pairs("a=%zz&b&c=1+2"), [("a".into(), "%zz".into()), ("c".into(), "1 2".into())]);
    }
}
