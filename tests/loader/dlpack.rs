//! Batches as tensors: where they lie, what they are called, and when they come back.

use std::ptr::NonNull;

use towtank::{
    device::HostDevice,
    loader::{
        Loader,
        dlpack::{DataType, Device, Tensor},
    },
    source::Memory,
};

const CELLS: usize = 6;

fn loader(device: HostDevice) -> Loader {
    let source = Memory::from_fn(12, |sample, into| {
        into.clear();
        into.push(sample as u8);
        Ok(())
    });
    Loader::from_source(source.with_bytes_bound(1))
        .fill(CELLS, |item, _, out| {
            out.iter_mut().enumerate().for_each(|(at, cell)| *cell = item.sample as u8 * 10 + at as u8);
            Ok(())
        })
        .batch(3)
        .held(2)
        .prefetch(1)
        .start_on(device)
        .expect("it starts")
}

fn cells(tensor: &Tensor) -> Vec<u8> {
    let count = tensor.shape().iter().product::<i64>() as usize;
    // SAFETY: the tensor is alive, and has so many cells on the host.
    unsafe { std::slice::from_raw_parts(tensor.plain().data.cast::<u8>(), count) }.to_vec()
}

#[test]
fn a_tensor_is_the_batch_where_it_lies_and_keeps_it() {
    // Lent in its slots, and copied.
    for device in [HostDevice::new(), HostDevice::copying()] {
        let mut loader = loader(device);
        let mut kept: Vec<(Tensor, Vec<u8>)> = Vec::new();
        for number in 0..4_u8 {
            let batch = loader.next().expect("four batches").expect("nothing fails");
            let (before, start) = (batch.pixels().to_vec(), batch.pixels().as_ptr());
            let tensor = batch.into_dlpack(&[2, 3]).expect("six cells");
            let plain = tensor.plain();
            assert_eq!(plain.data.cast_const().cast(), start, "nothing is copied");
            assert_eq!((tensor.shape(), plain.device), (&[3_i64, 2, 3][..], Device { kind: 1, number: 0 }));
            assert_eq!(plain.data_type, DataType { code: 1, bits: 8, lanes: 1 });
            // SAFETY: there are three strides.
            assert_eq!(unsafe { std::slice::from_raw_parts(plain.strides, 3) }, [6, 3, 1]);
            assert_eq!(before[0], number * 30);
            kept.push((tensor, before));
            if kept.len() == 2 {
                // It was not written meanwhile, and is given back late.
                let (tensor, before) = kept.remove(0);
                assert_eq!(cells(&tensor), before);
                // As another library does it.
                let raw = NonNull::new(tensor.into_raw()).expect("a tensor");
                // SAFETY: the deleter is called once.
                unsafe { (raw.as_ref().deleter.expect("it has one"))(raw.as_ptr()) };
            }
        }
        // The loader closes its books once its consumer has seen the end, and what came back before is in them.
        kept.clear();
        assert!(loader.next().is_none());
        let outcome = loader.close().expect("it ended");
        assert_eq!((outcome.slots.home, outcome.slots.lent), (outcome.slots.ring, 0));
    }
}

#[test]
fn a_tensor_may_outlive_its_loader_and_go_on_another_thread() {
    let mut loader = loader(HostDevice::new());
    let tensor = loader.next().expect("a batch").expect("nothing fails").into_dlpack(&[CELLS]).expect("six cells");
    assert_eq!(loader.close().expect("it ended").slots.lent, 3);
    let before = cells(&tensor);
    let elsewhere = std::thread::Builder::new().spawn(move || cells(&tensor)).expect("a thread");
    assert_eq!(elsewhere.join().expect("no panic"), before);
}

#[test]
fn a_shape_of_other_cells_is_refused() {
    let mut loader = loader(HostDevice::new());
    for shape in [&[7][..], &[2, 2], &[usize::MAX, 2], &[]] {
        let batch = loader.next().expect("a batch").expect("nothing fails");
        let error = batch.into_dlpack(shape).expect_err("six cells").to_string();
        assert!(error.starts_with("a sample has 6 cells, and a shape of ["), "{error}");
    }
}
