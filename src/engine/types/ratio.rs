//! Fair shares as exact fractions, and the comparison of two states by fairness (law 5).

use std::cmp::Ordering;

/// A team's fair share at one level: dominant borrowed amount ÷ (capacity × weight), compared exactly (law 5).
///
/// A denominator of zero stands for infinity: the share of a borrowing team of weight 0. Of two infinite shares
/// the one with the larger numerator is larger.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    numerator: u128,
    denominator: u128,
}

impl Ratio {
    /// The share of a team that borrows nothing.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };
    /// The largest share.
    pub const INFINITE: Self = Self { numerator: u128::MAX, denominator: 0 };

    /// `numerator ÷ denominator`. Infinite if only the denominator is zero, zero if both are.
    #[must_use]
    pub fn new(numerator: u128, denominator: u128) -> Self {
        match (numerator, denominator) {
            (0, _) => Self::ZERO,
            _ => Self { numerator, denominator },
        }
    }

    /// Whether it is the share of a borrowing team of weight 0.
    #[must_use]
    pub fn is_infinite(&self) -> bool {
        self.denominator == 0
    }
}

impl Ord for Ratio {
    /// Compares the whole parts, then the reciprocals of the remainders, so that no product can overflow.
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_infinite() && other.is_infinite() {
            return self.numerator.cmp(&other.numerator);
        }
        let (mut a, mut b, mut c, mut d) =
            (self.numerator, self.denominator, other.numerator, other.denominator);
        if b == d {
            return a.cmp(&c);
        }
        let small = |number: u128| number <= u128::from(u64::MAX);
        if [a, b, c, d].into_iter().all(small) {
            return (a * d).cmp(&(c * b));
        }
        let mut swapped = false;
        let ordering = loop {
            match (b, d) {
                (0, 0) => break Ordering::Equal,
                (0, _) => break Ordering::Greater,
                (_, 0) => break Ordering::Less,
                _ => {}
            }
            let whole = (a / b).cmp(&(c / d));
            if whole.is_ne() {
                break whole;
            }
            // a÷b against c÷d is now (a mod b)÷b against (c mod d)÷d, the reverse of b÷(a mod b) against d÷(c mod d).
            (a, b, c, d) = (b, a % b, d, c % d);
            swapped = !swapped;
        };
        if swapped { ordering.reverse() } else { ordering }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ratio {}

/// Whether the shares `after` are fairer than the shares `before`: sorted from the largest, the list is
/// lexicographically smaller (leximin, law 5). Shares that do not change may be left out of both.
#[must_use]
pub fn fairer(mut before: Vec<Ratio>, mut after: Vec<Ratio>) -> bool {
    before.sort_unstable_by(|left, right| right.cmp(left));
    after.sort_unstable_by(|left, right| right.cmp(left));
    after < before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_compare_exactly() {
        let ratio = Ratio::new;
        for (left, right, expected) in [
            (ratio(1, 3), ratio(2, 6), Ordering::Equal),
            (ratio(1, 3), ratio(333_333_333, 1_000_000_000), Ordering::Greater),
            (ratio(7, 2), ratio(10, 3), Ordering::Greater),
            (ratio(0, 5), ratio(0, 7), Ordering::Equal),
            (ratio(0, 0), ratio(1, u128::MAX), Ordering::Less),
            (ratio(u128::MAX - 1, u128::MAX), ratio(u128::MAX - 2, u128::MAX - 1), Ordering::Greater),
            (Ratio::INFINITE, ratio(u128::MAX, 1), Ordering::Greater),
            (Ratio::INFINITE, ratio(5, 0), Ordering::Greater),
            (ratio(4, 0), ratio(5, 0), Ordering::Less),
        ] {
            assert_eq!(left.cmp(&right), expected, "{left:?} {right:?}");
            assert_eq!(right.cmp(&left), expected.reverse(), "{right:?} {left:?}");
        }
    }

    #[test]
    fn the_largest_share_decides_first() {
        let list = |shares: &[u128]| shares.iter().map(|n| Ratio::new(*n, 10)).collect::<Vec<_>>();
        assert!(fairer(list(&[2, 0]), list(&[1, 1])));
        assert!(!fairer(list(&[2, 0]), list(&[0, 2])), "a swap changes nothing");
        assert!(fairer(list(&[3, 3, 0]), list(&[3, 2, 2])));
        assert!(!fairer(list(&[2, 1]), list(&[3, 0])));
    }
}
