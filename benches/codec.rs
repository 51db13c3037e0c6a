//! Images a second, decoded and resized, by each decoder: `cargo bench --bench codec [IMAGES] [ROUNDS]`.
//!
//! One thread, synthetic images spread as ImageNet's, 224 × 224. The routes take turns within each round, so that what else the computer does
//! falls on all of them alike; the figures are medians over the rounds, and the ratios are medians of each round's ratio to the first route.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use towtank::{
    codec::{Choice, Decoder, Target, probe},
    synth,
};

/// CPU time of this process [s].
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let (count, rounds) = (numbers.next().unwrap_or(200), numbers.next().unwrap_or(7).max(1));
    let start = cpu_s();
    let images: Vec<Vec<u8>> = (0..count as u64).map(|index| synth::jpeg(&synth::Spec::plan(1, index))).collect();
    let bytes = images.iter().map(Vec::len).sum::<usize>();
    println!(
        "{count} images of {} bytes on average, made in {:.1} ms each",
        bytes / count,
        (cpu_s() - start) * 1e3 / count as f64
    );

    let target = Target::square(224);
    let out = std::cell::RefCell::new(vec![0; target.bytes()]);
    let decoders: Vec<Decoder> =
        [Choice::Rust, Choice::Turbo].into_iter().filter_map(|choice| Decoder::new(choice, target).ok()).collect();
    type Route<'a> = (String, Box<dyn FnMut(&[u8]) + 'a>);
    let mut routes: Vec<Route<'_>> = Vec::new();
    for decoder in &decoders {
        let decode = move |jpeg: &[u8]| {
            black_box(decoder.decode_only(jpeg).expect("synthetic images are whole"));
        };
        routes.push((format!("{}: decode", decoder.description()), Box::new(decode)));
    }
    for decoder in &decoders {
        let out = &out;
        let resize = move |jpeg: &[u8]| {
            let info = decoder.decode_into(jpeg, &mut out.borrow_mut()).expect("synthetic images are whole");
            black_box(info);
        };
        routes.push((format!("{}: decode + resize", decoder.description()), Box::new(resize)));
    }
    routes.push((
        "headers only".to_owned(),
        Box::new(|jpeg| {
            black_box(probe(jpeg).expect("synthetic images are whole"));
        }),
    ));

    let mut rates = vec![Vec::new(); routes.len()];
    for _ in 0..rounds {
        for ((_, route), rates) in routes.iter_mut().zip(&mut rates) {
            let start = cpu_s();
            images.iter().for_each(|image| route(image));
            rates.push(count as f64 / (cpu_s() - start).max(1e-9));
        }
    }
    println!("{:56} {:>12} {:>8}", "one thread", "images/CPU s", "ratio");
    for ((name, _), own) in routes.iter().zip(&rates) {
        let ratio = median(own.iter().zip(&rates[0]).map(|(own, first)| own / first));
        println!("{name:56} {:12.0} {ratio:8.2}", median(own.iter().copied()));
    }
}
