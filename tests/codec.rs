//! Every kind of image against Pillow's pixels, and everything that can be wrong with one.

use std::{fs, path::PathBuf};

use proptest::prelude::*;
use towtank::{
    codec::{Backend, Choice, Decoder, Fit, Format, Limits, Orientation, Target, probe, scratch_bytes},
    failure::{Failure, FailureKind},
};

const SMALL: Target = Target { width: 24, height: 20, fit: Fit::Squash };

fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All decoders of this computer for a target.
fn decoders(target: Target) -> Vec<Decoder> {
    let rust = Decoder::new(Choice::Rust, target).unwrap();
    match Decoder::new(Choice::Turbo, target) {
        Ok(turbo) => vec![rust, turbo],
        Err(error) => {
            println!("skipped for libjpeg-turbo: {error}");
            vec![rust]
        }
    }
}

fn small(decoder: &Decoder, encoded: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut out = vec![0; decoder.target().bytes()];
    decoder.decode_into(encoded, &mut out).map(|_| out)
}

fn full(decoder: &Decoder, encoded: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    decoder.decode_full(encoded, &mut out).map(|_| out)
}

/// Mean and largest difference.
fn difference(a: &[u8], b: &[u8]) -> (f64, u8) {
    assert_eq!(a.len(), b.len(), "pictures of different sizes");
    let each = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
    (each.clone().map(f64::from).sum::<f64>() / a.len() as f64, each.max().unwrap_or(0))
}

fn images() -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".full.png") && !name.ends_with(".small.png"))
        .filter(|name| name.ends_with(".jpg") || name.ends_with(".png"))
        .collect();
    names.sort();
    assert!(names.len() > 30, "the references are missing: run tests/data/make.py");
    names
}

#[test]
fn every_kind_of_image_looks_as_pillow_shows_it() {
    let png = Decoder::new(Choice::Rust, SMALL).unwrap();
    let mut wrong = Vec::new();
    for decoder in decoders(SMALL) {
        for name in images() {
            let encoded = data(&name);
            let mut shown = Vec::new();
            let info = decoder.decode_full(&encoded, &mut shown).unwrap_or_else(|error| panic!("{name}: {error}"));
            let exact = info.header.format == Format::Png || (info.backend == Backend::Turbo && info.header.channels != 4);
            // As the module's documentation promises: of the full size, and resized.
            let limits = match (exact, info.backend) {
                _ if name == "size-1x17.jpg" && info.backend == Backend::Rust => [(4.0, 16), (4.0, 16)],
                (true, _) => [(0.0, 0), (0.3, 1)],
                (false, Backend::Turbo) => [(0.1, 1), (0.3, 1)],
                (false, Backend::Rust) => [(0.5, 6), (0.5, 6)],
            };
            let resized = small(&decoder, &encoded).unwrap();
            for ((what, shown), (mean_max, largest_max)) in [("full", shown), ("small", resized)].into_iter().zip(limits) {
                let reference = full(&png, &data(&format!("{name}.{what}.png"))).unwrap();
                let (mean, largest) = difference(&shown, &reference);
                let line = format!("{} {name} {what}: mean {mean:.3}, largest {largest}", decoder.backend());
                println!("{line}");
                if mean > mean_max || largest > largest_max {
                    wrong.push(format!("{line}; allowed are {mean_max} and {largest_max}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn orientation_is_undone_in_every_fit() {
    let target = Target { width: 12, height: 9, fit: Fit::CenterCrop { shorter: 14 } };
    for decoder in decoders(target) {
        let upright = Decoder::new(Choice::Rust, target).unwrap();
        for tag in 1..=8 {
            let encoded = data(&format!("exif-{tag}.jpg"));
            assert_eq!(probe(&encoded).unwrap().orientation, Orientation::from_tag(tag).unwrap());
            // The reference is the upright picture as a PNG, resized the same way.
            let reference = small(&upright, &data(&format!("exif-{tag}.jpg.full.png"))).unwrap();
            let (mean, largest) = difference(&small(&decoder, &encoded).unwrap(), &reference);
            assert!(mean < 1.0 && largest <= 8, "orientation {tag}: mean {mean}, largest {largest}");
        }
    }
}

#[test]
fn a_centre_crop_is_torchvisions() {
    // 61 × 43 with the shorter side scaled to 30 is 42 × 30; the middle 20 × 20 begins at (11, 5).
    let encoded = data("rgb.png");
    let whole = Decoder::new(Choice::Rust, Target { width: 42, height: 30, fit: Fit::Squash }).unwrap();
    let crop = Decoder::new(Choice::Rust, Target { width: 20, height: 20, fit: Fit::CenterCrop { shorter: 30 } }).unwrap();
    let (whole, crop) = (small(&whole, &encoded).unwrap(), small(&crop, &encoded).unwrap());
    let cut: Vec<u8> = (0..20).flat_map(|y| &whole[((y + 5) * 42 + 11) * 3..][..60]).copied().collect();
    let (_, largest) = difference(&crop, &cut);
    assert!(largest <= 1, "largest difference {largest}");
}

#[test]
fn deep_pngs_keep_their_upper_bits() {
    for colour in [png::ColorType::Grayscale, png::ColorType::Rgb, png::ColorType::GrayscaleAlpha, png::ColorType::Rgba] {
        let channels = colour.samples();
        let samples: Vec<u16> = (0..5 * 4 * channels as u16).map(|i| i.wrapping_mul(3121)).collect();
        let mut encoded = Vec::new();
        let mut encoder = png::Encoder::new(&mut encoded, 5, 4);
        encoder.set_color(colour);
        encoder.set_depth(png::BitDepth::Sixteen);
        let bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_be_bytes()).collect();
        encoder.write_header().unwrap().write_image_data(&bytes).unwrap();
        let expected: Vec<u8> = samples
            .chunks(channels)
            .flat_map(|pixel| if channels < 3 { [pixel[0]; 3] } else { [pixel[0], pixel[1], pixel[2]] })
            .map(|sample| (sample >> 8) as u8)
            .collect();
        let decoder = Decoder::new(Choice::Rust, SMALL).unwrap();
        assert_eq!(full(&decoder, &encoded).unwrap(), expected, "{colour:?}");
    }
}

#[test]
fn a_file_cut_anywhere_is_truncated() {
    for decoder in decoders(SMALL) {
        for name in ["s420.jpg", "progressive.jpg", "gray.jpg", "restart.jpg", "cmyk.jpg", "rgb.png", "palette-4.png"] {
            let whole = data(name);
            for cut in (0..whole.len()).step_by(7).chain(whole.len() - 14..whole.len()) {
                let failure = small(&decoder, &whole[..cut]).expect_err(name);
                let place = format!("{} {name} cut at {cut} of {}: {failure}", decoder.backend(), whole.len());
                assert_eq!(failure.kind, FailureKind::Truncated, "{place}");
            }
        }
    }
}

#[test]
fn damage_inside_a_scan_is_found() {
    let whole = data("s420.jpg");
    let middle = whole.len() * 3 / 4;
    let early_end = [&whole[..middle], &whole[whole.len() - 2..]].concat();
    let stuffed = [&whole[..whole.len() - 2], &[0x55; 40], &whole[whole.len() - 2..]].concat();
    for decoder in decoders(SMALL) {
        let kind = |encoded: &[u8]| small(&decoder, encoded).map_err(|failure| failure.kind);
        // Huffman codes fall into step again, so not every gap leaves a trace; libjpeg finds about as many.
        let gaps: Vec<_> = (0..20).map(|i| [&whole[..middle - 10 * i], &whole[middle - 10 * i + 60..]].concat()).collect();
        let found = gaps.iter().filter(|gap| kind(gap).is_err()).count();
        assert!(found >= 6, "{}: {found} of {} gaps found", decoder.backend(), gaps.len());
        assert_eq!(kind(&early_end), Err(FailureKind::Truncated), "{}: an end marker too early", decoder.backend());
        assert_eq!(kind(&stuffed), Err(FailureKind::Corrupt), "{}: bytes left over", decoder.backend());
        assert!(kind(&[&whole[..], b"trailing bytes are not the image's"].concat()).is_ok());
    }
}

#[test]
fn what_is_no_image_is_refused_by_name() {
    let says = |encoded: &[u8]| probe(encoded).unwrap_err().to_string();
    assert_eq!(says(b""), "truncated: the file is empty");
    assert_eq!(says(b"\x89PN"), "truncated: only 3 bytes, too few to tell the format");
    assert_eq!(says(b"GIF89a..."), "unsupported: GIF is not read here, only JPEG and PNG");
    assert_eq!(says(b"RIFF....WEBPVP8 "), "unsupported: WebP is not read here, only JPEG and PNG");
    assert_eq!(says(b"hello world"), "unsupported: neither JPEG nor PNG: starts with \"hello wo\"");
    for decoder in decoders(SMALL) {
        assert_eq!(small(&decoder, b"").unwrap_err().kind, FailureKind::Truncated);
        assert_eq!(small(&decoder, &[b'x'; 1000]).unwrap_err().kind, FailureKind::Unsupported);
    }
}

/// The file with other sides in its frame header.
fn with_sides(mut jpeg: Vec<u8>, height: u16, width: u16) -> Vec<u8> {
    let frame = jpeg.windows(2).position(|pair| pair[0] == 0xff && matches!(pair[1], 0xc0 | 0xc2)).unwrap();
    jpeg[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    jpeg[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    jpeg
}

#[test]
fn huge_images_are_refused_before_memory_is_taken() {
    let before = scratch_bytes().1;
    for decoder in decoders(SMALL) {
        let refused = |encoded: &[u8]| small(&decoder, encoded).unwrap_err();
        let bomb = refused(&with_sides(data("s420.jpg"), 65_500, 65_500));
        assert_eq!(bomb.to_string(), "too large: JPEG of 65500 × 65500: 4290250000 pixels, the limit is 178956970");
        let hollow = refused(&with_sides(data("s420.jpg"), 12_000, 12_000));
        assert_eq!(hollow.kind, FailureKind::Truncated, "{hollow}");
        let progressive = refused(&with_sides(data("progressive.jpg"), 12_000, 12_000));
        assert_eq!(progressive.kind, FailureKind::TooLarge, "{progressive}");

        let mut huge = data("rgb.png");
        huge[16..20].copy_from_slice(&0x4000_0000u32.to_be_bytes());
        assert_eq!(refused(&huge).kind, FailureKind::TooLarge);
    }
    assert!(scratch_bytes().1 - before < 64 << 20, "scratch grew to {} bytes", scratch_bytes().1);
}

#[test]
fn a_decompression_bomb_meets_the_limit() {
    let mut bomb = Vec::new();
    let mut encoder = png::Encoder::new(&mut bomb, 4000, 4000);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&vec![0; 4000 * 4000 * 3]).unwrap();
    assert!(bomb.len() < 500_000);
    let decoder = Decoder::new(Choice::Rust, SMALL).unwrap();
    assert!(small(&decoder, &bomb).is_ok());
    let pixels = decoder.clone().with_limits(Limits { pixels_max: 15_000_000, ..Limits::default() });
    assert_eq!(small(&pixels, &bomb).unwrap_err().kind, FailureKind::TooLarge);
    let bytes = decoder.with_limits(Limits { bytes_max: 10_000_000, ..Limits::default() });
    assert_eq!(small(&bytes, &bomb).unwrap_err().kind, FailureKind::TooLarge);
}

#[test]
fn a_png_that_breaks_its_checksum_is_corrupt() {
    let mut broken = data("rgb.png");
    let middle = broken.len() / 2;
    broken[middle] ^= 0x10;
    let decoder = Decoder::new(Choice::Rust, SMALL).unwrap();
    assert_eq!(small(&decoder, &broken).unwrap_err().kind, FailureKind::Corrupt);
}

#[test]
fn a_decoder_that_makes_no_sense_is_refused() {
    let error = |target| Decoder::new(Choice::Rust, target).unwrap_err().to_string();
    assert_eq!(error(Target::square(0)), "a target of 0 × 0 pixels: sides must be between 1 and 65535");
    let crop = Target { width: 224, height: 256, fit: Fit::CenterCrop { shorter: 240 } };
    assert_eq!(error(crop), "the shorter side is scaled to 240 pixels, fewer than the 256 that are cut out");
    assert_eq!("best".parse::<Choice>().unwrap_err().to_string(), "`best` is no codec: `auto`, `rust` or `turbo`");
    assert_eq!("turbo".parse(), Ok(Choice::Turbo));
}

#[test]
fn threads_share_a_decoder() {
    let names = images();
    for decoder in decoders(SMALL) {
        let expected: Vec<_> = names.iter().map(|name| small(&decoder, &data(name)).unwrap()).collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (name, expected) in names.iter().zip(&expected) {
                        assert_eq!(&small(&decoder, &data(name)).unwrap(), expected, "{name}");
                    }
                });
            }
        });
        assert!(decoder.peak_scratch_bytes() > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to a file, decoding returns, what it returns is a picture or a failure of the image, and the next one is not harmed.
    #[test]
    fn no_damage_harms_a_decoder(
        which in 0usize..1000,
        changes in prop::collection::vec((0usize..100_000, any::<u8>()), 1..12),
        cut in prop::option::of(0usize..100_000),
    ) {
        let names = images();
        let mut encoded = data(&names[which % names.len()]);
        for (place, byte) in changes {
            let place = place % encoded.len();
            encoded[place] = byte;
        }
        if let Some(cut) = cut {
            encoded.truncate(cut % (encoded.len() + 1));
        }
        let whole = data("s420.jpg");
        for decoder in decoders(SMALL) {
            let before = small(&decoder, &whole);
            // Changed headers may announce a large image that the data could hold.
            let decoder = decoder.with_limits(Limits { pixels_max: 1 << 20, ..Limits::default() });
            if let Err(failure) = small(&decoder, &encoded) {
                let kinds = [FailureKind::Truncated, FailureKind::Corrupt, FailureKind::Unsupported, FailureKind::TooLarge];
                prop_assert!(kinds.contains(&failure.kind), "{failure}");
                prop_assert!(!failure.message.contains("cannot cope"), "a panic inside: {failure}");
            }
            prop_assert_eq!(small(&decoder, &whole), before, "the next image suffers from this one");
        }
    }
}
