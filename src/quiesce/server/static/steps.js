// What a person can do once a run is over.

/** The buttons below the receipt of `run`: those that make sense now. `does` has what each of them does, by its id. */
export function nextSteps(run, receipt, does) {
  const reason = receipt?.stop_reason ?? run.stop_reason;
  const cut = !["end_turn", "stop_sequence", "steered"].includes(reason) || run.state === "crashed";
  const waits = reason === "interrupt";
  const steps = [
    cut && !waits && { id: "continue", label: "Continue", primary: true, title: "Let the model go on where it was stopped" },
    { id: "steer", label: "Steer", title: "Say what to do instead" },
    { id: "retry", label: "Retry", title: "Ask the same again" },
    run.undoable?.length > 0 && { id: "undo", label: "Undo", title: `Take back what was done by ${run.undoable.join(", ")}` },
    waits && { id: "dismiss", label: "Withdraw the question", title: "Withdraw the question: nothing is done, and the conversation can go on" },
  ];
  return steps.filter(Boolean).map((step) => ({ ...step, run: does[step.id] }));
}
