//! The lower of the two middle figures, so that a median is always a figure of one of those that it describes.

use std::cmp::Ordering;

/// Returns the lower median of figures; `None` if there are none.
pub(crate) fn lower_median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    middle_of(&figures).copied()
}

/// Returns the lower median of items in an order; `None` if there are none.
pub(crate) fn lower_median_by<T: Copy>(mut items: Vec<T>, order: impl Fn(&T, &T) -> Ordering) -> Option<T> {
    items.sort_by(order);
    middle_of(&items).copied()
}

fn middle_of<T>(sorted: &[T]) -> Option<&T> {
    sorted.get(sorted.len().saturating_sub(1) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_lower_one_of_two() {
        assert_eq!(lower_median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(lower_median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.0));
        assert_eq!(lower_median(Vec::new()), None);
        assert_eq!(lower_median_by(vec!["c", "a"], |one, other| one.cmp(other)), Some("a"));
    }
}
