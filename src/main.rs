//! The command line of Towtank.

fn main() {}
