# servers: google-drive, salesforce
# A text is cut like any other; a dict travels as an object.
document = await mcp_google_drive.get_document(documentId="d-1")
short = document[:20] + "…"

await mcp_salesforce.update_record(
    objectType="Meeting",
    recordId="r-1",
    data={"Notes": short},
)
