package toon_test

import (
	"encoding/json"
	"fmt"

	"github.com/sallyport/sallyport/internal/toon"
)

func ExampleMarshal() {
	document, err := toon.Marshal(json.RawMessage(`{
		"status": "success",
		"stdout": ["line1", "line2"],
		"files": [
			{"path": "a.csv", "bytes": 120, "by": {"name": "Ada"}},
			{"path": "b,c.csv", "bytes": 9007199254740993, "by": {"name": "Bob"}}
		]
	}`), toon.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(document))
	// Output:
	// status: success
	// stdout[2]: line1,line2
	// files[2]{path,bytes,by{name}}:
	//   a.csv,120,Ada
	//   "b,c.csv",9007199254740993,Bob
}
