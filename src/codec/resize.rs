//! Antialiased bilinear resizing of RGB.

use fast_image_resize::{
    FilterType, PixelType, ResizeAlg, ResizeOptions,
    images::{Image, ImageRef},
};

use crate::failure::{Failure, FailureKind};

/// The part of the source that becomes the whole result [px]; fractions of pixels are meant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

#[derive(Default)]
pub(crate) struct Resizer {
    inner: fast_image_resize::Resizer,
}

impl Resizer {
    pub(crate) fn bytes(&self) -> usize {
        self.inner.size_of_internal_buffers()
    }

    pub(crate) fn resize(
        &mut self,
        source: &[u8],
        source_size: (u32, u32),
        window: Window,
        out: &mut [u8],
        out_size: (u32, u32),
    ) -> Result<(), Failure> {
        let wrong = |error: &dyn std::fmt::Display| Failure::new(FailureKind::Corrupt, format!("cannot resize: {error}"));
        let source = ImageRef::new(source_size.0, source_size.1, source, PixelType::U8x3).map_err(|e| wrong(&e))?;
        let mut out = Image::from_slice_u8(out_size.0, out_size.1, out, PixelType::U8x3).map_err(|e| wrong(&e))?;
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .crop(window.left, window.top, window.width, window.height)
            .use_alpha(false);
        self.inner.resize(&source, &mut out, &options).map_err(|e| wrong(&e))
    }
}
