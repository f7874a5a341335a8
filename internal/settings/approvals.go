package settings

import "time"

func declareApprovals(a *Approvals) []*setting {
	return []*setting{
		{key: "approvals.timeout", value: duration(&a.Timeout, time.Second, 24*time.Hour).or("never", 0), initial: "5m",
			help: "How long a call that needs approval waits for an answer; no answer means no. `never`: no one is asked, so such calls are refused at once."},
		{key: "approvals.notify.desktop", value: boolean(&a.Notify.Desktop), initial: "false",
			help: "Show a desktop notification for each question, with `notify-send` or `osascript`. It names the tool and how many calls wait, and has no arguments."},
		{key: "approvals.notify.command", value: list(&a.Notify.Command, isCommandWord, "a program and its arguments"), defaults: "none",
			help: "A program to run for each question. It gets the question as JSON on standard input, without arguments of calls."},
		{key: "approvals.notify.webhook", value: matching(&a.Notify.Webhook, isServiceURL, "an https address, or an http address of this machine"), defaults: "none",
			help: "An address that gets each question as JSON, without arguments of calls, with POST."},
		{key: "approvals.notify.secret", value: secret(&a.Notify.Secret), defaults: "none",
			help: "What signs the requests to `approvals.notify.webhook`: the header `X-Sallyport-Signature` is `sha256=` and the HMAC-SHA256 of the body, in hexadecimal."},
	}
}

func isCommandWord(word string) bool { return word != "" && isPrintable(word) == nil }
