//! The loader of images for other languages: three functions, and batches as DLPack tensors. `read.py` is their other side.

use std::{
    ffi::{CStr, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use towtank::loader::{Loader, dlpack::Managed};

/// A loader, and the shape of its samples.
pub struct Images {
    loader: Loader,
    shape: [usize; 3],
}

/// Writes `message` to `error`, which has room for `room` bytes.
///
/// # Safety
///
/// `error` has that room.
unsafe fn say(message: &str, error: *mut c_char, room: usize) {
    let Some(length) = room.checked_sub(1).map(|most| message.len().min(most)) else { return };
    // SAFETY: as this function asks for.
    unsafe {
        ptr::copy_nonoverlapping(message.as_ptr().cast(), error, length);
        *error.add(length) = 0;
    }
}

/// Begins to load the images of `folder`, brought to `size` × `size`, in batches of `batch`, shuffled, of which the caller keeps up to
/// `held`. Null after an error, which is then in `error`.
///
/// # Safety
///
/// `folder` is a string that ends with a zero, and `error` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towtank_open(
    folder: *const c_char,
    size: u32,
    batch: usize,
    held: usize,
    error: *mut c_char,
    room: usize,
) -> *mut Images {
    // SAFETY: as this function asks for.
    let folder = unsafe { CStr::from_ptr(folder) }.to_string_lossy().into_owned();
    let begun = catch_unwind(AssertUnwindSafe(|| {
        let loader = Loader::images(&folder)?.size(size, size).batch(batch).held(held).shuffle(7).start()?;
        Ok::<_, Box<dyn std::error::Error>>(Images { loader, shape: [size as usize, size as usize, 3] })
    }));
    let message = match begun {
        Ok(Ok(images)) => return Box::into_raw(Box::new(images)),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the loader panicked".to_owned(),
    };
    // SAFETY: as this function asks for.
    unsafe { say(&message, error, room) };
    ptr::null_mut()
}

/// The next batch as a `DLManagedTensor`, whose deleter the caller calls once. Null at the end, and after an error, which is then in
/// `error`; at the end `error` is empty.
///
/// # Safety
///
/// `images` came from [`towtank_open`], nobody else uses it meanwhile, and `error` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towtank_next(images: *mut Images, error: *mut c_char, room: usize) -> *mut Managed {
    // SAFETY: as this function asks for.
    let Images { loader, shape } = unsafe { &mut *images };
    let next = catch_unwind(AssertUnwindSafe(|| {
        let Some(batch) = loader.next() else { return Ok(ptr::null_mut()) };
        let tensor = batch.map_err(|error| error.to_string())?.into_dlpack(shape).map_err(|error| error.to_string())?;
        Ok(tensor.into_raw())
    }));
    let message = match next {
        Ok(Ok(tensor)) => {
            // SAFETY: as this function asks for.
            unsafe { say("", error, room) };
            return tensor;
        }
        Ok(Err(message)) => message,
        Err(_) => "the loader panicked".to_owned(),
    };
    // SAFETY: as this function asks for.
    unsafe { say(&message, error, room) };
    ptr::null_mut()
}

/// Ends the loader. How many of its slots are with tensors that have not been deleted; −1 if it was lost.
///
/// # Safety
///
/// `images` came from [`towtank_open`] and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towtank_close(images: *mut Images) -> i64 {
    // SAFETY: as this function asks for.
    let Images { loader, .. } = *unsafe { Box::from_raw(images) };
    catch_unwind(AssertUnwindSafe(|| loader.close())).ok().and_then(Result::ok).map_or(-1, |books| books.slots.lent as i64)
}
