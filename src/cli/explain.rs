//! `towtank explain`: what limits a scenario's loader, and what would relieve it.

use towtank::{advise, document::printable, report::Html, scenario, trace::Recorder};

use super::{
    Ending,
    args::ExplainArgs,
    output::{Files, Spinner, print},
    sim::{note_the_reference, samples},
};

pub(crate) fn run(args: &ExplainArgs) -> Result<(), Ending> {
    let scenario = scenario::load(&args.scenario.scenario, &args.scenario.overrides())?;
    let machine = scenario.machine_model()?;
    note_the_reference(&scenario);
    let samples = samples(None, &scenario)?;
    let (files, recorder) = Files::open(&args.output)?;
    let spinner = Spinner::start("simulating with more of everything".to_owned());
    let explained = advise::explain(&scenario, &machine, &samples, args.seeds);
    drop(spinner);
    let explained = explained?;
    let told = print(&explained, args.scenario.json, || printable(&explained.terminal()).into_owned());
    if !files.are_wanted() {
        return Ok(told?);
    }
    // The whole scenario as it is, beside which the changes are drawn.
    let mut simulated = scenario.simulate(&machine, &samples, recorder)?;
    let report = simulated.report(&scenario);
    let what_if = explained.what_if();
    let page = |traced: &Recorder| Html::new(&report).simulated(traced.timeline()).what_if(&what_if).render();
    // Whoever has closed standard output may still want the files.
    files.close(&mut simulated.recorder, page).and(told.map_err(Ending::from))
}
