//! Tasks that wait for each other in a circle.

use super::{Waiting, WaitsFor};

/// Numbers of tasks of which each waits for the next and the last for the first: the circle that is met first from the first task on,
/// beginning with its least. Empty where there is none. Every wait is looked at once.
pub(super) fn find(waiting: &[Waiting]) -> Vec<u32> {
    let of_number = {
        let mut of_number = vec![None; waiting.iter().map(|task| task.number as usize + 1).max().unwrap_or(0)];
        waiting.iter().enumerate().for_each(|(k, task)| of_number[task.number as usize] = Some(k));
        of_number
    };
    let next = |task: usize| -> Vec<usize> {
        let WaitsFor::Shared { on, .. } = &waiting[task].on else { return Vec::new() };
        on.iter().filter_map(|on| *of_number.get(on.task? as usize)?).collect()
    };
    // Tasks that were left lead to no circle; those on the way are met again only on one.
    let (mut left, mut on_way) = (vec![false; waiting.len()], vec![false; waiting.len()]);
    for start in 0..waiting.len() {
        if left[start] {
            continue;
        }
        let mut way = vec![(start, next(start))];
        on_way[start] = true;
        while let Some((task, rest)) = way.last_mut() {
            match rest.pop() {
                Some(next_task) if on_way[next_task] => {
                    let from = way.iter().position(|(task, _)| *task == next_task).unwrap_or(0);
                    let mut circle: Vec<u32> = way[from..].iter().map(|(task, _)| waiting[*task].number).collect();
                    let least = circle.iter().enumerate().min_by_key(|(_, number)| **number).map_or(0, |(k, _)| k);
                    circle.rotate_left(least);
                    return circle;
                }
                Some(next_task) if left[next_task] => {}
                Some(next_task) => {
                    on_way[next_task] = true;
                    way.push((next_task, next(next_task)));
                }
                None => {
                    (left[*task], on_way[*task]) = (true, false);
                    way.pop();
                }
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::sim::stall::On;

    fn waits(number: u32, on: &[u32]) -> Waiting {
        let on = on.iter().map(|task| On { task: Some(*task), what: "has it".to_owned() }).collect();
        let on = WaitsFor::Shared { what: "waits".to_owned(), on };
        Waiting { number, task: "task", spawned_at: Location::caller(), on }
    }

    #[test]
    fn a_circle_is_found_behind_a_way_that_leads_to_it_and_past_those_that_lead_nowhere() {
        let tasks = [waits(0, &[4]), waits(4, &[9, 2]), waits(2, &[7]), waits(7, &[8, 4]), waits(8, &[])];
        assert_eq!(find(&tasks), [2, 7, 4]);
        assert!(find(&tasks[..3]).is_empty());
        assert_eq!(find(&[waits(3, &[3])]), [3]);
    }

    #[test]
    fn a_long_line_is_looked_at_once() {
        let tasks: Vec<Waiting> = (0..100_000).map(|k| waits(k, &[k + 1, k + 1])).collect();
        assert!(find(&tasks).is_empty());
    }
}
