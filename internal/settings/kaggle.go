package settings

// Kaggle is about the engine that runs code on Kaggle.
type Kaggle struct {
	URL         string
	Accelerator string
	Internet    bool
	Keep        bool
	MaxOutput   int64
	CodeCarbon  bool
}

func declareKaggle(k *Kaggle) []*setting {
	return []*setting{
		{key: "kaggle.accelerator", value: text(&k.Accelerator), initial: "none",
			help: "What runs get that ask for none: `none`, `gpu`, `tpu`, or an accelerator by Kaggle's own name, such as `NvidiaTeslaT4`. Hours with one count against the week's quota."},
		{key: "kaggle.internet", value: boolean(&k.Internet), initial: "false",
			help: "Let every run reach the internet, also one that does not ask for it. Kaggle gives it to accounts with a verified phone number."},
		{key: "kaggle.keep", value: boolean(&k.Keep), initial: "false",
			help: "Leave scripts and their output at Kaggle when a run has ended and its files have arrived."},
		{key: "kaggle.maxOutput", value: size(&k.MaxOutput, mib, 20*gib), initial: "1g",
			help: "What the files of one run may come to that are fetched. Others stay at Kaggle, and the result says so. It is never more than two fifths of `runs.maxDisk`."},
		{key: "kaggle.codecarbon", value: boolean(&k.CodeCarbon), initial: "false",
			help: "Also run CodeCarbon's own tracker beside the code, and report its figures beside ours. It is installed from PyPI for each run: only with internet, and with `carbon.kaggle.location`, which it is told."},
		{key: "kaggle.url", value: text(&k.URL), initial: "https://api.kaggle.com",
			help: "Address of Kaggle's API: https, or this machine for tests."},
	}
}
