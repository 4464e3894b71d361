//! How teams look: a colour, and a letter for those that do not see colours.

use std::collections::BTreeMap;

/// The colours in `chart.css`.
const COLOURS: usize = 10;

/// Colour and letter of every team.
#[derive(Clone, Debug, Default)]
pub struct Palette(BTreeMap<String, (usize, char)>);

impl Palette {
    /// The palette of these teams. Colours follow the order of their names, so the same teams look the same everywhere.
    pub fn new<'a>(teams: impl IntoIterator<Item = &'a str>) -> Self {
        let mut known: BTreeMap<String, (usize, char)> = teams
            .into_iter()
            .filter(|team| !team.is_empty())
            .map(|team| (team.to_owned(), (0, ' ')))
            .collect();
        let mut taken = Vec::new();
        for (at, (team, look)) in known.iter_mut().enumerate() {
            let own = team.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_uppercase());
            let letter = own.chain('A'..='Z').chain('1'..='9').find(|letter| !taken.contains(letter));
            // With more teams than letters the last ones share a sign.
            let letter = letter.unwrap_or('*');
            taken.push(letter);
            *look = (at % COLOURS, letter);
        }
        Self(known)
    }

    /// The class of a team's colour.
    #[must_use]
    pub fn class(&self, team: &str) -> String {
        self.0.get(team).map_or_else(|| "other".to_owned(), |(colour, _)| format!("t{colour}"))
    }

    /// The letter of a team.
    #[must_use]
    pub fn letter(&self, team: &str) -> char {
        self.0.get(team).map_or('?', |(_, letter)| *letter)
    }

    /// The teams in order.
    pub fn teams(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::super::STYLE;
    use super::*;

    #[test]
    fn every_team_has_a_letter_of_its_own() {
        let palette = Palette::new(["vision", "video", "speech", "v"]);
        let letters: Vec<char> = ["speech", "v", "video", "vision"].map(|team| palette.letter(team)).into();
        assert_eq!(letters, ['S', 'V', 'I', 'O']);
        assert_eq!(
            (palette.class("speech"), palette.class("unknown")),
            ("t0".to_owned(), "other".to_owned())
        );
        let many: Vec<String> = (0..100).map(|at| format!("team-{at}")).collect();
        assert_eq!(Palette::new(many.iter().map(String::as_str)).teams().count(), 100);
    }

    /// The values of the variables in one block of the style: the light theme comes first.
    fn variables(block: usize) -> BTreeMap<String, [f64; 3]> {
        let text =
            STYLE.split(":root {").nth(block + 1).and_then(|rest| rest.split('}').next()).expect("a block");
        let colour = |text: &str| -> Option<[f64; 3]> {
            let digits = text.trim().strip_prefix('#')?;
            let part = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
            Some([part(0)?, part(2)?, part(4)?].map(|part| {
                let part = f64::from(part) / 255.0;
                if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
            }))
        };
        let pairs = text.split(';').filter_map(|line| line.trim().strip_prefix("--")?.split_once(':'));
        pairs.filter_map(|(name, value)| Some((name.to_owned(), colour(value)?))).collect()
    }

    fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
        let luminance = |[red, green, blue]: [f64; 3]| 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn texts_and_cells_stand_out_in_both_themes() {
        for block in [0, 1] {
            let colours = variables(block);
            let least = |front: &str, back: &str, least: f64| {
                let contrast = contrast(colours[front], colours[back]);
                assert!(
                    contrast >= least,
                    "theme {block}: {front} on {back} is {contrast:.2}, less than {least}"
                );
            };
            for back in ["page", "panel"] {
                for front in ["ink", "soft", "good", "wait", "bad", "link"] {
                    least(front, back, 4.5);
                }
                least("line", back, 3.0);
                least("edge", back, 3.0);
            }
            for colour in 0..COLOURS {
                least(&format!("t{colour}"), "page", 3.0);
                least("on", &format!("t{colour}"), 4.5);
            }
            least("on-closed", "closed", 4.5);
        }
    }
}
