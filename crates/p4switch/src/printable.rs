// SPDX-License-Identifier: Apache-2.0
//! Text of a program's file on a terminal.

/// Escapes characters that control a terminal or the direction of text, other than line feeds: names in a file must not
/// change what is shown.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

fn is_hidden(character: char) -> bool {
    let formats = matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(character, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
    formats || (character.is_control() && character != '\n')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            printable("a\u{1b}[31m\u{9b}\r\u{202e}b\nc é"),
            "a\\u{1b}[31m\\u{9b}\\u{d}\\u{202e}b\nc é"
        );
    }
}
