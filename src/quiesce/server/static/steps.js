// The actions for a run that has ended.

/** The buttons below the receipt of `run` that apply now. `does` has their actions by id. */
export function nextSteps(run, receipt, does) {
  const reason = receipt?.stop_reason ?? run.stop_reason;
  const cut = !["end_turn", "stop_sequence", "steered"].includes(reason) || run.state === "crashed";
  const waits = reason === "interrupt";
  const steps = [
    cut && !waits && { id: "continue", label: "Continue", primary: true, title: "Let the model go on where it was stopped" },
    { id: "steer", label: "Steer", title: "Write what it should do instead" },
    { id: "retry", label: "Retry", title: "Send the same prompt again" },
    run.undoable?.length > 0 && { id: "undo", label: "Undo", title: `Undo what was done by ${run.undoable.join(", ")}` },
    waits && { id: "dismiss", label: "Withdraw the question", title: "Withdraw the question: the call is not run, and you can send a prompt" },
  ];
  return steps.filter(Boolean).map((step) => ({ ...step, run: does[step.id] }));
}
